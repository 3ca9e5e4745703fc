package changes

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// parseObject returns an entry of an inventory from KIND/NAME=HASH, with flags behind spaces.
func parseObject(text string) v1alpha1.SourceObject {
	fields := strings.Fields(text)
	what, hash, _ := strings.Cut(fields[0], "=")
	kind, name, _ := strings.Cut(what, "/")
	o := v1alpha1.SourceObject{APIVersion: "v1", Kind: kind, Namespace: "shop", Name: name, Hash: hash}
	if kind == "CustomResourceDefinition" {
		o.APIVersion = "apiextensions.k8s.io/v1"
	}
	for _, f := range fields[1:] {
		if f == "adopted" {
			o.Adopted = true
		} else {
			o.Kept = f
		}
	}
	return o
}

func parseObjects(text string) (out []v1alpha1.SourceObject) {
	for one := range strings.SplitSeq(text, ", ") {
		if one != "" {
			out = append(out, parseObject(one))
		}
	}
	return out
}

// formatDecision returns a decision as words.
func formatDecision(wanted []v1alpha1.SourceObject, d Decision) string {
	var out []string
	for _, i := range d.Apply {
		out = append(out, "apply "+wanted[i].Name)
	}
	for _, i := range d.Unchanged {
		out = append(out, "same "+wanted[i].Name)
	}
	for _, o := range d.Remove {
		out = append(out, "remove "+o.Name)
	}
	for _, o := range d.Keep {
		out = append(out, "keep "+o.Name+" "+o.Kept)
	}
	return strings.Join(out, ", ")
}

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		wanted, inventory string
		change            func(*Input)
		want              string
	}{
		"new":                           {"A/a=1", "", nil, "apply a"},
		"unchanged":                     {"A/a=1", "A/a=1", nil, "same a"},
		"changed":                       {"A/a=2", "A/a=1", nil, "apply a"},
		"dropped":                       {"A/a=1", "A/a=1, A/b=1", nil, "same a, remove b"},
		"another kind of the same name": {"A/a=1", "B/a=1", nil, "apply a, remove a"},
		"dropped under prune: Keep":     {"A/a=1", "A/a=1, A/b=1", func(in *Input) { in.Prune = v1alpha1.PruneKeep }, "same a, keep b PruneKeeps"},
		"dropped by the settings":       {"A/a=1", "A/a=1, A/b=1", func(in *Input) { in.SameSettings = false }, "same a, keep b SettingsChanged"},
		"dropped, and existed before":   {"A/a=1", "A/a=1, A/b=1 adopted", nil, "same a, keep b Adopted"},
		"a dropped namespace":           {"A/a=1", "A/a=1, Namespace/b=1", nil, "same a, keep b HoldsOthers"},
		"a dropped CRD":                 {"A/a=1", "A/a=1, CustomResourceDefinition/b=1", nil, "same a, keep b HoldsOthers"},
		"kept before, by settings":      {"A/a=1", "A/a=1, A/b=1 SettingsChanged", nil, "same a, keep b SettingsChanged"},
		"kept before, and back":         {"A/a=1, A/b=1", "A/a=1, A/b=1 SettingsChanged", nil, "apply b, same a"},
		"everything again":              {"A/a=1", "A/a=1", func(in *Input) { in.ApplyAll = true }, "apply a"},
	} {
		in := Input{Wanted: parseObjects(c.wanted), Inventory: parseObjects(c.inventory), SameSettings: true, Prune: v1alpha1.PruneRemove}
		if c.change != nil {
			c.change(&in)
		}
		if got := formatDecision(in.Wanted, Decide(in)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestAnotherVersionOfAnAPIIsTheSameObject(t *testing.T) {
	in := Input{Wanted: parseObjects("A/a=1"), Inventory: parseObjects("A/a=1"), SameSettings: true}
	in.Wanted[0].APIVersion, in.Inventory[0].APIVersion = "x.dev/v2", "x.dev/v1"
	if got := formatDecision(in.Wanted, Decide(in)); got != "same a" {
		t.Error(got)
	}
	if k := KeyOf(v1alpha1.SourceObject{APIVersion: "a/b/c", Kind: "A"}); k.Group != "a/b/c" {
		t.Error(k)
	}
}

func TestRewrittenHistoryRemovesNothing(t *testing.T) {
	in := Input{Wanted: parseObjects("A/a=1"), Inventory: parseObjects("A/a=1, A/b=1"), SameSettings: true}
	d := Decide(in)
	d.KeepAll(atoll.ReasonHistoryRewritten)
	if got := formatDecision(in.Wanted, d); got != "same a, keep b HistoryRewritten" {
		t.Error(got)
	}
}

func TestWhatOthersNeedIsAppliedFirst(t *testing.T) {
	wanted := parseObjects("ConfigMap/a=1, PropagationPolicy/p=1, CustomResourceDefinition/c=1, Namespace/n=1, ConfigMap/b=1")
	wanted[1].APIVersion = "atoll.dev/v1alpha1"
	indexes := []int{0, 1, 2, 3, 4}
	SortForApply(wanted, indexes)
	if want := []int{3, 2, 1, 0, 4}; !slices.Equal(indexes, want) {
		t.Errorf("%v, want %v", indexes, want)
	}
}

// Every object of the inventory and of the content is in exactly one part of the decision.
func TestNothingIsLost(t *testing.T) {
	for n := range 1 << 8 {
		in := Input{SameSettings: n&1 == 0, ApplyAll: n&2 == 0, Prune: v1alpha1.PruneRemove}
		for i := range 3 {
			o := parseObject(fmt.Sprintf("A/%d=1", i))
			if n&(4<<i) == 0 {
				in.Wanted = append(in.Wanted, o)
			}
			if n&(32<<i) == 0 {
				in.Inventory = append(in.Inventory, o)
			}
		}
		d := Decide(in)
		all := map[string]int{}
		for _, i := range slices.Concat(d.Apply, d.Unchanged) {
			all[in.Wanted[i].Name]++
		}
		for _, o := range slices.Concat(d.Remove, d.Keep) {
			all[o.Name]++
		}
		for _, o := range slices.Concat(in.Wanted, in.Inventory) {
			if all[o.Name] != 1 {
				t.Errorf("case %d: %s is in %d parts", n, o.Name, all[o.Name])
			}
		}
	}
}
