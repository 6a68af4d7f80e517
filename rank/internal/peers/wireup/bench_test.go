package wireup

import (
	"fmt"
	"testing"
)

// BenchmarkParseCards is what a rank does with a card of each rank of a large job: docs/scale.md.
func BenchmarkParseCards(b *testing.B) {
	const ranks, perHost = 1 << 16, 64
	packed := make([][]byte, ranks)
	for r := range packed {
		c := Card{Host: fmt.Sprint("node", r/perHost), Place: fmt.Sprintf("2d8c10c582f1f4c3/%d", r/perHost), Local: r % perHost, PID: 1000 + r, Device: "soft0", Provider: "soft", Endpoint: make([]byte, 48), Team: make([]byte, 24)}
		packed[r] = c.Pack()
	}
	b.ReportAllocs()
	for b.Loop() {
		if cards, err := ParseCards(packed); err != nil || len(cards) != ranks {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/ranks, "ns/card")
	b.ReportMetric(float64(len(packed[ranks-1])), "card-B")
}
