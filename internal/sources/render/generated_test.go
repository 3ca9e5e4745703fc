package render

import (
	"slices"
	"testing"
)

// A field is noted only where both renderings have it, so that the hub finds it in each of them.
func TestFindGeneratedInLists(t *testing.T) {
	list := func(elements ...any) map[string]any { return map[string]any{"l": elements} }
	named := func(name, v string) any { return map[string]any{"name": name, "v": v} }
	for name, c := range map[string]struct {
		one, other map[string]any
		want       []string
		ok         bool
	}{
		"an element by name":            {list(named("a", "1"), named("b", "1")), list(named("a", "1"), named("b", "2")), []string{"/l/name=b/v"}, true},
		"a list as a whole":             {list("a", "b"), list("a"), []string{"/l"}, true},
		"two elements have one name":    {list(named("a", "1"), named("b", "1")), list(named("a", "1"), named("a", "1")), nil, false},
		"two have one name in the one":  {list(named("a", "1"), named("a", "1")), list(named("a", "1"), named("b", "1")), []string{"/l"}, true},
		"a list in the one alone":       {list("a"), map[string]any{}, nil, false},
		"a list in the other alone":     {map[string]any{}, list("a"), nil, false},
		"a named list in the one alone": {list(named("a", "1")), map[string]any{}, nil, false},
	} {
		got, ok := FindGenerated(c.one, c.other)
		if ok != c.ok || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
	}
}
