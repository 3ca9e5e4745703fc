package output

import (
	"bytes"
	"strings"
	"testing"
)

func TestColorIsForTerminals(t *testing.T) {
	var out bytes.Buffer
	t.Setenv("NO_COLOR", "")
	for value, want := range map[string]bool{"": false, "auto": false, "always": true, "never": false} {
		var c Color
		if value != "" {
			if err := c.Set(value); err != nil {
				t.Fatal(err)
			}
		}
		if c.IsEnabled(&out) != want {
			t.Errorf("--color=%s: what is no terminal is coloured: %t", value, !want)
		}
	}
	t.Setenv("NO_COLOR", "1")
	always := Color{value: "always"}
	if !always.IsEnabled(&out) {
		t.Error("NO_COLOR is stronger than what was asked for")
	}
	if err := new(Color).Set("blue"); err == nil {
		t.Error("any word is a --color")
	}
}

func TestEachClusterHasItsColour(t *testing.T) {
	p := &Palette{On: true}
	oslo, tokyo := p.PaintText("oslo", "x"), p.PaintText("tokyo", "x")
	if oslo == tokyo || oslo != p.PaintText("oslo", "x") || !strings.HasSuffix(oslo, "mx\x1b[0m") {
		t.Errorf("painted are %q and %q", oslo, tokyo)
	}
	if got := p.PaintText("", "x"); got != "x" {
		t.Errorf("what is of no cluster is painted: %q", got)
	}
	if got := new(Palette).PaintText("oslo", "x"); got != "x" {
		t.Errorf("it paints, and is off: %q", got)
	}
}

func TestLinesStayWhole(t *testing.T) {
	var out bytes.Buffer
	lines := NewLines(&out)
	a, b := lines.PrefixWriter("a "), lines.PrefixWriter("b ")
	for _, step := range []struct {
		to   interface{ Write([]byte) (int, error) }
		text string
	}{{a, "on"}, {b, "first\nsec"}, {a, "e\n\n"}, {b, "ond"}, {a, strings.Repeat("x", pieceMost+1)}} {
		if n, err := step.to.Write([]byte(step.text)); err != nil || n != len(step.text) {
			t.Fatalf("%d bytes are written, %v", n, err)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	want := "b first\na one\na \na " + strings.Repeat("x", pieceMost) + "\na x\nb second\n"
	if out.String() != want {
		t.Errorf("written is\n%.80q\nwanted\n%.80q", out.String(), want)
	}
}
