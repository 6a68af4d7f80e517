package main

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// sizeName is a number of bytes as people write it: 8, 1K, 256K, 1M.
func sizeName(n int) string {
	for _, unit := range []struct {
		letter string
		bytes  int
	}{{"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}} {
		if n != 0 && n%unit.bytes == 0 {
			return strconv.Itoa(n/unit.bytes) + unit.letter
		}
	}
	return strconv.Itoa(n)
}

// parseSize reads a number of bytes: 8, 64K, 1MiB, 2g.
func parseSize(text string) (int, error) {
	digits := strings.TrimRight(text, "kKmMgGiIbB")
	shift, ok := map[string]int{"": 0, "b": 0, "k": 10, "kb": 10, "kib": 10, "m": 20, "mb": 20, "mib": 20, "g": 30, "gb": 30, "gib": 30}[strings.ToLower(text[len(digits):])]
	n, err := strconv.Atoi(digits)
	if err != nil || !ok || n < 0 {
		return 0, fmt.Errorf("found %q, expected a size as 8, 64K or 1M", text)
	}
	if n > maxSize>>shift {
		return 0, fmt.Errorf("found %s, expected at most %s: MPI counts with 32 bits", text, sizeName(maxSize))
	}
	return n << shift, nil
}

// maxSize is the longest block: the MPIs in C count bytes in an int.
const maxSize = 1 << 30

// parseSizes reads a list of sizes and ranges: "8,1K,64K", "8:1M" (doubling),
// "8:1M*4" (times 4). The sizes come sorted, each once.
func parseSizes(text string) ([]int, error) {
	var list []int
	for item := range strings.SplitSeq(text, ",") {
		item, factorText, stepped := strings.Cut(item, "*")
		first, last, ranged := strings.Cut(item, ":")
		factor := 2
		if stepped {
			var err error
			if factor, err = strconv.Atoi(factorText); err != nil || factor < 2 || !ranged {
				return nil, fmt.Errorf("found %q, expected a range and a factor of 2 or more, as 8:1M*4", text)
			}
		}
		from, err := parseSize(first)
		to := from
		if err == nil && ranged {
			to, err = parseSize(last)
		}
		if err != nil {
			return nil, err
		}
		if to < from || ranged && from == 0 {
			return nil, fmt.Errorf("found the range %q, expected the smaller size first, 1 or more", item)
		}
		for n := from; n <= to; n *= factor {
			list = append(list, n)
			if n == 0 || bits.Len(uint(n))+bits.Len(uint(factor)) > 62 {
				break
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// parseCounts reads a list of numbers of ranks: "2,4", "2:16" (doubling).
func parseCounts(text string) ([]int, error) {
	list, err := parseSizes(text)
	if err != nil || list[0] < 1 || list[len(list)-1] > maxRanks {
		return nil, fmt.Errorf("found %q, expected numbers of ranks from 1 to %d, as 2,4 or 2:16", text, maxRanks)
	}
	return list, nil
}

const maxRanks = 4096
