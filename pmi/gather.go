package pmi

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/internal/pack"
)

// AllGather is a fence in which each rank gives a card of at most CardMax
// bytes and gets the cards of all ranks, by rank. All ranks of the job
// call it equally often. The cards belong to the caller and share memory.
//
// With a gorun launcher it costs one request. With other launchers each rank puts
// its card in hexadecimal, in as many pieces as the limit on values requires,
// enters a barrier, and gets the pieces of all: size x pieces requests per rank.
func (c *Client) AllGather(ctx context.Context, card []byte) ([][]byte, error) {
	if len(card) > CardMax {
		return nil, fmt.Errorf("pmi: all-gather: %w: a card of %d bytes, the limit is %d", ErrLimit, len(card), CardMax)
	}
	c.call.Lock()
	defer c.call.Unlock()
	gather := c.gatherKeys
	if c.ext {
		gather = c.gatherCards
	}
	cards, err := gather(ctx, card)
	if err != nil {
		return nil, fmt.Errorf("pmi: all-gather: %w", err)
	}
	return cards, nil
}

// gatherCards uses the extension.
func (c *Client) gatherCards(ctx context.Context, card []byte) ([][]byte, error) {
	request := make([]byte, 0, 48+len(card))
	request = append(request, "cmd=gorun_allgather size="...)
	request = strconv.AppendInt(request, int64(len(card)), 10)
	request = append(append(request, '\n'), card...)
	m, err := c.askBytes(ctx, request, "gorun_allgather_result")
	if err != nil {
		return nil, err
	}
	size, ok := m.Int("size")
	if !ok || size < 0 || size > c.size*(CardMax+5)+5 {
		return nil, c.fail(fmt.Errorf("%w: %s answers %q", ErrSyntax, c.name, clip(m.String())))
	}
	stop := c.watch(ctx)
	defer stop()
	body := make([]byte, size)
	if err := c.readBytes(ctx, body); err != nil {
		return nil, err
	}
	r := pack.NewReader(body)
	n := r.Array()
	cards := make([][]byte, 0, n)
	for ; n > 0 && r.Err() == nil; n-- {
		cards = append(cards, r.Bin())
	}
	if err := r.End(); err != nil || len(cards) != c.size {
		return nil, c.fail(fmt.Errorf("%s: cards of %d ranks in %d bytes, want %d: %w", c.name, len(cards), size, c.size, pack.ErrDamaged))
	}
	return cards, nil
}

// pieceLineMax bounds the lines of the fallback: MPICH's servers and clients
// have buffers of 1024 bytes, and values are told in lines of about the same
// overhead in both directions.
const pieceLineMax = 1000

// gatherKeys uses put, barrier and get. The first piece begins with the number
// of pieces: "3:0A1B...".
func (c *Client) gatherKeys(ctx context.Context, card []byte) ([][]byte, error) {
	c.fenc++
	const overhead = len("cmd=put kvsname= key= value=\n") + KeyLenMax + len("65536:")
	piece := min(c.valMax-len("65536:"), pieceLineMax-overhead-len(c.kvs)) &^ 1
	if piece < 2 {
		return nil, fmt.Errorf("%w: %s takes values of %d bytes", ErrLimit, c.name, c.valMax)
	}
	text := hex.EncodeToString(card)
	pieces := max(1, (len(text)+piece-1)/piece)
	for i := range pieces {
		value := text[i*piece : min(len(text), (i+1)*piece)]
		if i == 0 {
			value = strconv.Itoa(pieces) + ":" + value
		}
		if err := c.put(ctx, c.pieceKey(c.rank, i), value); err != nil {
			return nil, err
		}
	}
	if err := c.barrier(ctx); err != nil {
		return nil, err
	}
	var cards [][]byte // grows with what comes: the size is what the server says
	for rank := range c.size {
		b, err := c.getCard(ctx, rank, card)
		if err != nil {
			return nil, fmt.Errorf("card of rank %d: %w", rank, err)
		}
		cards = append(cards, b)
	}
	return cards, nil
}

func (c *Client) getCard(ctx context.Context, rank int, own []byte) ([]byte, error) {
	if rank == c.rank {
		return append([]byte(nil), own...), nil
	}
	first, err := c.get(ctx, c.pieceKey(rank, 0))
	if err != nil {
		return nil, err
	}
	count, text, _ := strings.Cut(first, ":")
	pieces, err := strconv.Atoi(count)
	if err != nil || pieces < 1 || pieces > 2*CardMax {
		return nil, fmt.Errorf("%w: it begins %q", ErrSyntax, clip(first))
	}
	for i := 1; i < pieces; i++ {
		more, err := c.get(ctx, c.pieceKey(rank, i))
		if err != nil {
			return nil, err
		}
		if text += more; len(text) > 2*CardMax {
			return nil, fmt.Errorf("%w: more than %d bytes", ErrLimit, CardMax)
		}
	}
	b, err := hex.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	return b, nil
}

func (c *Client) pieceKey(rank, piece int) string {
	return "gorun-" + strconv.FormatUint(c.fenc, 10) + "-" + strconv.Itoa(rank) + "-" + strconv.Itoa(piece)
}
