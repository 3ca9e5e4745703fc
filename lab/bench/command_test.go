package bench

import (
	"strings"
	"testing"
)

func TestTables(t *testing.T) {
	numbers := []benchNumber{
		{What: "hub ready", Value: 3.141, Unit: "s", How: "to /readyz"},
		{What: "place", Value: 3.94, Unit: "ms", How: "50 of 10,000", Allocations: new(float64(152)), Bytes: new(float64(612_345))},
		{What: "changed", Value: 0.25, Unit: "µs", How: "one of 50", Allocations: new(float64(0)), Bytes: new(float64(0))},
		{What: "hub writes", Value: 10, Unit: "requests", Goal: "<= 12", How: "one Deployment", Detail: "POST bundles 1"},
	}
	for name, c := range map[string]struct {
		print func(*strings.Builder) error
		want  []string
	}{
		"people": {func(b *strings.Builder) error { return printTable(b, numbers) }, []string{"hub ready    3.14 s                               -       to /readyz", "\n\nhub writes: POST bundles 1\n"}},
		"markdown": {func(b *strings.Builder) error { return printMarkdown(b, numbers) }, []string{"| hub ready | 3.14 s |  | to /readyz |\n",
			"| place | 3.94 ms, 612 kB in 152 allocations |  | 50 of 10,000 |\n", "| changed | 0.25 µs, no allocation |  | one of 50 |\n", "| hub writes | 10 requests | <= 12 | one Deployment |\n"}},
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

// TestWrongRequests is refused before anything is started for it, by the flag's
// name.
func TestWrongRequests(t *testing.T) {
	for want, args := range map[string][]string{
		`there is no scenario "faster"`:      {"faster"},
		"--output is \"yaml\"":               {"place-100", "-o", "yaml"},
		"--scale is NaN":                     {"place-100", "--scale", "NaN"},
		"--scale is +Inf":                    {"place-100", "--scale", "Inf"},
		"--scale is 0":                       {"place-100", "--scale", "0"},
		"--scale is 1e+09":                   {"place-100", "--scale", "1e9"},
		"--seed is -1":                       {"place-100", "--seed", "-1"},
		"--json: not for a scenario":         {"place-100", "--json"},
		"--scale: for scenarios only":        {"--scale", "0.1"},
		"--output, --seed: for scenarios on": {"-o", "json", "--seed", "3"},
	} {
		cmd := NewCommand()
		cmd.SetArgs(args)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("bench %s: %v, want %q", strings.Join(args, " "), err, want)
		}
	}
}
