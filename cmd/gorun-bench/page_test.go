package main

import (
	"fmt"
	"html"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

func recordedPage(t *testing.T) string {
	t.Helper()
	h, points, r := recorded()
	var b strings.Builder
	if err := writePage(&b, h, r.rows(points)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var (
	figures   = regexp.MustCompile(`(?s)<figure class="(\w+)" data-count="(\d+)">(.*?)</figure>`)
	curveLine = regexp.MustCompile(`<g class="series" style="stroke:var\(--s-`)
	barShape  = regexp.MustCompile(`<i class="length" style="left: ?[0-9.]+%; ?width: ?[0-9.]+%; ?background: ?var\(--s(lower)?-`)
)

func TestPageInABrowser(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	page := recordedPage(t)
	dom, console, requests := testenv.Browser(t, page, "")
	if console != "" {
		t.Errorf("the console says %s", console)
	}
	if len(requests) > 0 {
		t.Errorf("the page asks for %q", requests)
	}
	found := map[string]int{}
	for _, f := range figures.FindAllStringSubmatch(dom, -1) {
		found[f[1]]++
		want, err := strconv.Atoi(f[2])
		if err != nil {
			t.Fatal(err)
		}
		shape := map[string]*regexp.Regexp{"curves": curveLine, "bars": barShape}[f[1]]
		if got := len(shape.FindAllString(f[3], -1)); got != want || f[1] == "curves" && !strings.Contains(f[3], `role="img"`) {
			t.Errorf("%s: %d shapes, want %d, the curves in a picture with a name:\n%s", f[1], got, want, f[3])
		}
	}
	// Latency, a size of bandwidth, a barrier and two all-reduces; all but the
	// barrier in two kinds of memory. Only the all-reduce has a curve, of 4 systems.
	if found["bars"] != 1 || found["curves"] != 1 || !strings.Contains(dom, `class="bars" data-count="9"`) || !strings.Contains(dom, `class="curves" data-count="4"`) {
		t.Errorf("got %v, want a figure of 9 bars and one of 4 curves", found)
	}
	for _, text := range []string{"A CPU &lt;of&gt; this &amp; that", "WRONG", "failed", "gorun-bench --quick", "Allreduce, 2 ranks"} {
		if !strings.Contains(dom, text) {
			t.Errorf("no %q in the page", text)
		}
	}
	_, points, r := recorded()
	if got, want := strings.Count(dom, "<tr><th scope=\"row\""), len(linesOf(r.rows(points))); got != want {
		t.Errorf("%d lines in the table, want %d", got, want)
	}
	if strings.Contains(page, "<script") || regexp.MustCompile(`(src|href)="`).MatchString(strings.ReplaceAll(page, "xlink:href", "")) {
		t.Error("the page is not complete in itself")
	}
}

// All panels of bars have one scale; the slowest comes first, and is of another
// colour; the spread and the aims lie where the scale says.
func TestBarsShareAScale(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	rows := []*row{
		{Benchmark: "allreduce", System: gorun, NP: 2, Bytes: 8, Memory: registered, Peer: mpich, Ratio: 0.5, RatioLow: 0.25, RatioHigh: 1, Pairs: 3},
		{Benchmark: "latency", System: gorun, NP: 2, Bytes: 8, Memory: ordinary, Peer: mpich, Ratio: 3, RatioLow: 3, RatioHigh: 3, Pairs: 1},
		{Benchmark: "bcast", System: gorun, NP: 2, Bytes: 8, Memory: registered, Peer: mpich, Ratio: 100, RatioLow: 90, RatioHigh: 110, Pairs: 3},
	}
	s := ratioScale(rows)
	if s != (scale{low: 0.25, high: widest}) || len(s.powers()) != 8 || s.powers()[0] != (tick{"1/4", "0.00%"}) || s.powers()[7] != (tick{"32", "100.00%"}) {
		t.Errorf("scale %v with the ticks %v", s, s.powers())
	}
	var got []string
	for _, b := range bars(rows, s) {
		got = append(got, fmt.Sprint(b.Name, " ", b.Value, " ", b.Slower, " ", b.Colour, " ", b.Left, " ", b.Width, " ", b.SpreadLeft, " ", b.SpreadTo))
	}
	want := []string{
		"bcast 8 100 true --slower-registered 28.57% 71.43% 100.00% 0.00%",
		"latency 8 3.00 true --slower-ordinary 28.57% 22.64%  ",
		"allreduce 8 0.50 false --s-registered 14.29% 14.29% 0.00% 28.57%",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	page := recordedPage(t)
	if ticks := regexp.MustCompile(`<div class="ticks">.*`).FindAllString(page, -1); len(ticks) == 0 || ticks[0] != ticks[len(ticks)-1] {
		t.Errorf("the panels have the axes %q", ticks)
	}
	if summary := regexp.MustCompile(`<p class="summary">gorun is faster in \d+ of 9 measurements .*slowest measurement is .* aim are within it\.</p>`); !summary.MatchString(page) {
		t.Errorf("no line at the top like %v", summary)
	}
}

// A window of 420 pixels shows all of the page's width, in letters of 10 pixels and
// more: only the table scrolls.
func TestPageFitsANarrowWindow(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	page := strings.Replace(recordedPage(t), "default-src 'none'", "default-src 'none'; script-src 'unsafe-inline'", 1)
	page = strings.Replace(page, "</body>", `<script>
var least = 99;
for (const e of document.querySelectorAll("p, .bar span, .bar b, .ticks span, dd")) least = Math.min(least, parseFloat(getComputedStyle(e).fontSize));
for (const e of document.querySelectorAll(".curves text")) least = Math.min(least, 11 * e.ownerSVGElement.getBoundingClientRect().width / 400);
parent.document.body.dataset.fits = document.documentElement.scrollWidth + " of " + document.documentElement.clientWidth + ", " + (least >= 10 ? "readable" : least);
</script></body>`, 1)
	// No window of the browser is so narrow, but a frame is.
	dom, _, _ := testenv.Browser(t, `<!DOCTYPE html><title>x</title><body><iframe width="420" height="900" style="border:0" srcdoc="`+html.EscapeString(page)+`"></iframe></body>`, "")
	if m := regexp.MustCompile(`data-fits="([^"]*)"`).FindStringSubmatch(dom); m == nil || !regexp.MustCompile(`^(\d+) of (\d+), readable$`).MatchString(m[1]) {
		t.Errorf("got %q", m)
	} else if p := strings.Fields(strings.ReplaceAll(m[1], ",", "")); p[0] != p[2] {
		t.Errorf("the page needs %s pixels, its frame has %s", p[0], p[2])
	}
}

// The colours of all systems are on the picture that the browser draws, in
// light and in dark.
func TestPageIsDrawn(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	page := recordedPage(t)
	for scheme, colours := range map[string][]string{
		"1": {"#ffffff", "#0060a8", "#3b9fd8", "#c44f00", "#00795a"}, // light
		"0": {"#15171a", "#5aa9f0", "#9fd6fa", "#f58b4c", "#3fc79a"},
	} {
		shot := filepath.Join(t.TempDir(), "page.png")
		testenv.Browser(t, page, "", "--blink-settings=preferredColorScheme="+scheme, "--window-size=1200,1600", "--screenshot="+shot)
		f, err := os.Open(shot)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		picture, err := png.Decode(f)
		if err != nil {
			t.Fatal(err)
		}
		pixels := map[string]int{}
		for y := range picture.Bounds().Dy() {
			for x := range picture.Bounds().Dx() {
				r, g, b, _ := picture.At(x, y).RGBA()
				pixels[fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8)]++
			}
		}
		for _, c := range colours {
			if pixels[c] < 20 {
				t.Errorf("colour scheme %s: %d pixels are %s", scheme, pixels[c], c)
			}
		}
	}
}

// The checks above would see a page that does not keep to itself.
func TestBrowserSeesWhatIsWrong(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	_, console, requests := testenv.Browser(t, `<!DOCTYPE html><title>x</title><img src="http://page.invalid/x.png"><script>console.error("broken")</script>`, "")
	if !strings.Contains(console, "broken") || len(requests) == 0 || !strings.Contains(requests[0], "page.invalid") {
		t.Errorf("console %q, requests %q", console, requests)
	}
}
