package stdio

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 123456789, time.UTC)

func TestExpand(t *testing.T) {
	o := &Origin{Group: 1, Rank: 7, NP: 100, Host: "node3", Index: 2, Stream: 2}
	for pattern, want := range map[string]string{
		"":                    "",
		"[%r] ":               "[7] ",
		"%R/%g/%G/%h/%p/%s":   "007/1/2/node3/2/stderr",
		"%t %T":               "61 12:01:01.123456",
		"%c":                  "Sat Nov 21 12:01:01 2026",
		"100%% %x %":          "100% %x %",
		"no letter is lost é": "no letter is lost é",
	} {
		if got := string(Expand(nil, pattern, o, noon.Add(61*time.Second), noon)); got != want {
			t.Errorf("%q: got %q, want %q", pattern, got, want)
		}
	}
}

func TestView(t *testing.T) {
	a := &Origin{Rank: 0, NP: 2, Host: "h", Stream: 1}
	b := &Origin{Rank: 1, NP: 2, Host: `h"1`, Stream: 2}
	type step struct {
		from *Origin
		text string
		last bool
	}
	for _, c := range []struct {
		name  string
		style Style
		steps []step
		want  string
	}{
		{"plain", Style{}, []step{{a, "x\ny", true}, {b, "z\n", false}}, "x\nyz\n"},
		{"prefix", Style{Prefix: "[%r] "}, []step{{a, "x\n\n", false}, {b, "z\n", false}}, "[0] x\n[0] \n[1] z\n"},
		{"the last line ends", Style{Prefix: "%s:"}, []step{{a, "x", true}, {b, "y\n", false}}, "stdout:x\nstderr:y\n"},
		{"the end comes later", Style{Prefix: "%r:"}, []step{{a, "x", false}, {a, "", true}, {b, "y\n", false}}, "0:x\n1:y\n"},
		{"a long line in pieces", Style{Prefix: "%r:"}, []step{{a, "x", false}, {a, "y", false}, {a, "z\n", false}}, "0:xyz\n"},
		{"one writes into another's line", Style{Prefix: "%r:"}, []step{{a, "x", false}, {b, "y\n", false}, {a, "z\n", false}}, "0:x\n1:y\n0:z\n"},
		{"and that ends meanwhile", Style{Prefix: "%r:"}, []step{{a, "x", false}, {b, "y\n", false}, {a, "", true}}, "0:x\n1:y\n"},
		{"colour of a prefix", Style{Prefix: "%r:", Color: true}, []step{{a, "x\n", false}, {b, "y\n", false}}, "\x1b[36m0:\x1b[0mx\n\x1b[33m1:\x1b[0my\n"},
		{"colour of lines", Style{Color: true}, []step{{a, "x\n", false}}, "\x1b[36mx\x1b[0m\n"},
		{"json", Style{Form: JSON}, []step{{a, "x\t\"\\\x01é\n", false}, {b, "\xff\n", false}, {a, "y", true}},
			`{"time":"2026-11-21T12:00:00.123456Z","rank":0,"host":"h","stream":"stdout","text":"x\t\"\\\u0001é"}` + "\n" +
				`{"time":"2026-11-21T12:00:00.123456Z","rank":1,"host":"h\"1","stream":"stderr","base64":"/w=="}` + "\n" +
				`{"time":"2026-11-21T12:00:00.123456Z","rank":0,"host":"h","stream":"stdout","text":"y","partial":true}` + "\n"},
		{"xml", Style{Form: XML}, []step{{a, "<&>\n", false}, {b, "y", true}},
			"<stdout rank=\"0\">&lt;&amp;&gt;&#010;</stdout>\n<stderr rank=\"1\">y</stderr>\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := NewView(c.style, noon)
			var got []byte
			for _, s := range c.steps {
				got = append(got, v.Render(Piece{From: s.from, Data: []byte(s.text), At: noon, Last: s.last})...)
			}
			if string(got) != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// streams cuts random data of some origins into random pieces, interleaved.
func streams(random *rand.Rand) (data map[*Origin][]byte, pieces []Piece) {
	data = make(map[*Origin][]byte)
	var from []*Origin
	for rank := range 3 {
		for stream := 1; stream <= 2; stream++ {
			o := &Origin{Rank: rank, NP: 3, Host: "h", Stream: stream}
			from = append(from, o)
			data[o] = lineData(random, random.IntN(2000))
		}
	}
	at := make(map[*Origin]int)
	for len(from) > 0 {
		i := random.IntN(len(from))
		o := from[i]
		n := min(random.IntN(300), len(data[o])-at[o])
		p := Piece{From: o, Data: data[o][at[o] : at[o]+n], At: noon}
		at[o] += n
		if p.Last = at[o] == len(data[o]); p.Last {
			from = append(from[:i], from[i+1:]...)
		}
		pieces = append(pieces, p)
	}
	return data, pieces
}

// Every byte comes back out of JSON, in the order of its origin.
func TestJSONLosesNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		data, pieces := streams(random)
		v := NewView(Style{Form: JSON}, noon)
		var out bytes.Buffer
		for _, p := range pieces {
			out.Write(v.Render(p))
		}
		got := map[string]string{}
		for line := range strings.Lines(out.String()) {
			var object struct {
				Rank                 int
				Stream, Text, Base64 string
				Partial              bool
			}
			if err := json.Unmarshal([]byte(line), &object); err != nil {
				t.Fatalf("%v: %q", err, line)
			}
			text, err := base64.StdEncoding.DecodeString(object.Base64)
			if err != nil {
				t.Fatal(err)
			}
			key := fmt.Sprint(object.Rank, object.Stream)
			got[key] += object.Text + string(text)
			if !object.Partial {
				got[key] += "\n"
			}
		}
		for o, want := range data {
			if got := got[fmt.Sprint(o.Rank, StreamName(o.Stream))]; got != string(want) {
				t.Fatalf("rank %d, %s: got %d bytes, want %d", o.Rank, StreamName(o.Stream), len(got), len(want))
			}
		}
	}
}

// With a prefix every line is one origin's, and without the prefixes and the
// newlines all bytes are there in order.
func TestPrefixLosesNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 100 {
		data, pieces := streams(random)
		v := NewView(Style{Prefix: "<%r%s>"}, noon)
		var out bytes.Buffer
		for _, p := range pieces {
			out.Write(v.Render(p))
		}
		got := map[string]string{}
		for line := range strings.Lines(out.String()) {
			key, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ">")
			if !ok || key[0] != '<' || !strings.HasSuffix(line, "\n") {
				t.Fatalf("a line of nobody: %q", line)
			}
			got[key[1:]] += text
		}
		for o, want := range data {
			if got, want := got[fmt.Sprint(o.Rank, StreamName(o.Stream))], strings.ReplaceAll(string(want), "\n", ""); got != want {
				t.Fatalf("rank %d, %s: got %d bytes, want %d", o.Rank, StreamName(o.Stream), len(got), len(want))
			}
		}
	}
}

func TestXMLIsRead(t *testing.T) {
	o := &Origin{Stream: 1}
	v := NewView(Style{Form: XML}, noon)
	text := "a<b>&\"c\"\ttab\r\nnext\n"
	d := xml.NewDecoder(io.MultiReader(strings.NewReader(XMLBegin), bytes.NewReader(v.Render(Piece{From: o, Data: []byte(text)})), strings.NewReader(XMLEnd)))
	var got string
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "stdout" {
			var s string
			if err := d.DecodeElement(&s, &e); err != nil {
				t.Fatal(err)
			}
			got += s
		}
	}
	if got != text {
		t.Errorf("got %q, want %q", got, text)
	}
}
