package pmi

import (
	"context"
	"fmt"
)

// Universe is how many ranks the job could have, as its launcher says; false when
// it does not know.
func (c *Client) Universe(ctx context.Context) (n int, known bool, err error) {
	return c.number(ctx, "universe_size", "size")
}

// AppNum is the number of this rank's program among the programs of the job, from
// 0; false when the launcher does not know.
func (c *Client) AppNum(ctx context.Context) (n int, known bool, err error) {
	return c.number(ctx, "appnum", "appnum")
}

// number asks a question whose answer is a number, negative when it is not known.
func (c *Client) number(ctx context.Context, what, key string) (n int, known bool, err error) {
	c.call.Lock()
	defer c.call.Unlock()
	m, err := c.ask(ctx, "cmd=get_"+what+"\n", what)
	if err != nil {
		return 0, false, fmt.Errorf("pmi: get %s: %w", what, err)
	}
	n, ok := m.Int(key)
	return n, ok && n >= 0, nil
}
