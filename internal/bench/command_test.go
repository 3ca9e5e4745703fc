package bench

import (
	"strings"
	"testing"
)

func TestTables(t *testing.T) {
	numbers := []number{
		{What: "hub ready", Value: 3.141, Unit: "s", How: "to /readyz"},
		{What: "hub writes", Value: 10, Unit: "requests", Goal: "<= 12", How: "one Deployment", Detail: "POST bundles 1"},
	}
	for name, c := range map[string]struct {
		print func(*strings.Builder) error
		want  []string
	}{
		"people":   {func(b *strings.Builder) error { return print(b, numbers) }, []string{"hub ready    3.14 s        -       to /readyz", "\n\nhub writes: POST bundles 1\n"}},
		"markdown": {func(b *strings.Builder) error { return printMarkdown(b, numbers) }, []string{"| hub ready | 3.14 s |  | to /readyz |\n", "| hub writes | 10 requests | <= 12 | one Deployment |\n"}},
	} {
		var b strings.Builder
		if err := c.print(&b); err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s: %q is not in\n%s", name, want, b.String())
			}
		}
	}
}
