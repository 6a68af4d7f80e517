package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// A transfer is a row of a table of the secure channel: both ends send so many messages of so many bytes.
// The guides' times are in microseconds.
type transfer struct {
	count, bytes, buffer        int // buffer 0: the default
	docaSend, docaRecv, docaAll float64
	send, recv, all             []float64
}

// The guides' tables. Their times for each message are totals by the number of messages.
func messageSizes() []*transfer {
	return []*transfer{{count: 10, bytes: 128, docaAll: 90}, {count: 10, bytes: 256, docaAll: 90}, {count: 10, bytes: 512, docaAll: 96}, {count: 10, bytes: 1024, docaAll: 103}}
}

func messageCounts() []*transfer {
	return []*transfer{{count: 1, bytes: 256, docaAll: 57}, {count: 2, bytes: 256, docaAll: 62}, {count: 5, bytes: 256, docaAll: 73}, {count: 10, bytes: 256, docaAll: 90},
		{count: 50, bytes: 256, docaAll: 313}, {count: 100, bytes: 256, docaAll: 602}, {count: 1000, bytes: 256, docaAll: 6917}}
}

func bufferSizes() []*transfer {
	return []*transfer{
		{100, 1024, 64, 3895, 176, 3895, nil, nil, nil}, {100, 1024, 128, 3928, 202, 3928, nil, nil, nil},
		{100, 1024, 512, 4157, 197, 4157, nil, nil, nil}, {100, 1024, 1024, 3181, 185, 3181, nil, nil, nil},
		{10, 256, 64, 119, 131, 505, nil, nil, nil}, {10, 256, 128, 110, 61, 376, nil, nil, nil},
		{10, 256, 512, 145, 159, 606, nil, nil, nil}, {10, 256, 1024, 444, 254, 556, nil, nil, nil},
	}
}

// channelTime is how long the tables of the channel may take; transferTime one of their runs.
const (
	channelTime  = 60 * time.Second
	transferTime = 10 * time.Second
)

// channel measures the tables of the secure channel.
func (m *measuring) channel(ctx context.Context, p *page) error {
	sizes, counts, buffers := messageSizes(), messageCounts(), bufferSizes()
	all := append(append(append([]*transfer(nil), sizes...), counts...), buffers...)
	ctx, cancel := context.WithTimeout(ctx, channelTime)
	defer cancel()
	for range m.rounds(channelRounds) {
		for _, t := range all {
			if err := m.transfer(ctx, t); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
	each := func(title, first string, list []*transfer, name func(*transfer) string) table {
		t := table{title: title, columns: []string{first, "DOCA, us", "each", "here, us", "each"}}
		for _, x := range list {
			one := make([]float64, len(x.all))
			for i, us := range x.all {
				one[i] = us / float64(x.count)
			}
			t.rows = append(t.rows, []string{name(x), figure(x.docaAll), figure(x.docaAll / float64(x.count)), of(x.all), of(one)})
		}
		return t
	}
	buffer := table{title: "Buffer size", text: "A slot of the send queue has so many bytes (`--buffer-size`); longer messages take several. Send, receive and total in microseconds.\n",
		columns: []string{"messages", "buffer", "DOCA: send", "receive", "total", "here: send", "receive", "total"}}
	for _, x := range buffers {
		buffer.rows = append(buffer.rows, []string{fmt.Sprintf("%d of %d B", x.count, x.bytes), sizeName(x.buffer),
			figure(x.docaSend), figure(x.docaRecv), figure(x.docaAll), of(x.send), of(x.recv), of(x.all)})
	}
	p.sections = append(p.sections, section{
		title: "Secure channel",
		text: "`secure-channel --role dpu` and `--role host` on one host, by memory. Times are those of the host's end, from its first message until it knows that both\n" +
			"ends have received all. [Secure channel](secure-channel.md) has the program and its output.\n",
		tables: []table{
			each("Message size", "10 messages of", sizes, func(x *transfer) string { return sizeName(x.bytes) }),
			each("Message count", "messages of 256 B", counts, func(x *transfer) string { return strconv.Itoa(x.count) }),
			buffer,
		},
	})
	return nil
}

// transfer runs both ends once.
func (m *measuring) transfer(ctx context.Context, t *transfer) error {
	ctx, cancel := context.WithTimeout(ctx, transferTime)
	defer cancel()
	file := filepath.Join(m.dir, "channel.json")
	args := []string{"-p", "soft0", "-s", strconv.Itoa(t.bytes), "-n", strconv.Itoa(t.count), "--name", filepath.Base(m.dir), "-l", "30"}
	if t.buffer > 0 {
		args = append(args, "--buffer-size", strconv.Itoa(t.buffer))
	}
	ended := make(chan error, 1)
	go func() {
		_, err := m.command(ctx, "secure-channel", append([]string{"--role", "dpu"}, args...)...)
		ended <- err
	}()
	_, err := m.command(ctx, "secure-channel", append([]string{"--role", "host", "--output-json", file}, args...)...)
	if err != nil {
		cancel() // the other end waits for nobody
	}
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var r struct {
		Channels []struct {
			Send    float64 `json:"send_us"`
			Receive float64 `json:"receive_us"`
			Total   float64 `json:"total_us"`
		} `json:"channels"`
	}
	if err := json.Unmarshal(text, &r); err != nil || len(r.Channels) != 1 {
		return fmt.Errorf("secure-channel wrote %q: %w", text, err)
	}
	t.send, t.recv, t.all = append(t.send, r.Channels[0].Send), append(t.recv, r.Channels[0].Receive), append(t.all, r.Channels[0].Total)
	return nil
}
