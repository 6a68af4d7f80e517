package main

import (
	"slices"
	"strings"
	"testing"
)

func TestParseSizes(t *testing.T) {
	for _, c := range []struct {
		text string
		want []int
		fail string // in the error
	}{
		{"8", []int{8}, ""},
		{"0", []int{0}, ""},
		{"1M,8,1K,8", []int{8, 1024, 1 << 20}, ""},
		{"8:64", []int{8, 16, 32, 64}, ""},
		{"8:100", []int{8, 16, 32, 64}, ""},
		{"1:1M*32", []int{1, 32, 1024, 32768, 1 << 20}, ""},
		{"1KiB,2kb,3b", []int{3, 1024, 2048}, ""},
		{"1G", []int{1 << 30}, ""},
		{"2G", nil, "at most 1G"},
		{"9999999999999999999", nil, "expected a size"},
		{"", nil, "expected a size"},
		{"8,", nil, "expected a size"},
		{"-8", nil, "expected a size"},
		{"8x", nil, "expected a size"},
		{"8kk", nil, "expected a size"},
		{"64:8", nil, "smaller size first"},
		{"0:8", nil, "1 or more"},
		{"8:64*1", nil, "factor of 2 or more"},
		{"8*4", nil, "a range and a factor"},
		{"8:1G*9999999", []int{8, 79999992}, ""},
	} {
		got, err := parseSizes(c.text)
		if c.fail != "" {
			if err == nil || !strings.Contains(err.Error(), c.fail) {
				t.Errorf("%q: got %v, error %v; want an error with %q", c.text, got, err, c.fail)
			}
		} else if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: got %v, error %v; want %v", c.text, got, err, c.want)
		}
	}
}

func TestSizeName(t *testing.T) {
	for n, want := range map[int]string{0: "0", 8: "8", 1000: "1000", 1024: "1K", 1536: "1536", 256 << 10: "256K", 1 << 20: "1M", 3 << 30: "3G"} {
		if got := sizeName(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
		if n <= maxSize {
			if back, err := parseSize(want); err != nil || back != n {
				t.Errorf("%s: got %d, error %v; want %d", want, back, err, n)
			}
		}
	}
}

func FuzzParseSizes(f *testing.F) {
	for _, seed := range []string{"8", "8:1M*4", "1K,2K", "0", ":", "*", "8:1G*3"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseSizes(text)
		if err != nil {
			return
		}
		if len(list) == 0 || !slices.IsSorted(list) || list[0] < 0 || list[len(list)-1] > maxSize {
			t.Errorf("%q: got %v", text, list)
		}
	})
}
