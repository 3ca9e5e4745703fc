package generate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// decideCase is a SourceSet with Sources on the hub, and what its generators give now.
type decideCase struct {
	set       *v1alpha1.SourceSet
	made      Result
	existing  map[string]*v1alpha1.Source
	barred    map[string]bool
	histories map[int]History
	now       time.Time
}

// newDecideCase returns a case of which the SourceSet made Sources of names, each by GENERATOR/NAME, and which generates now.
func newDecideCase(t *testing.T, before, now string) *decideCase {
	t.Helper()
	c := &decideCase{set: newSet(t, "[{list: {elements: []}}, {clusters: {}}]", plainTemplate), existing: map[string]*v1alpha1.Source{}, barred: map[string]bool{}, histories: map[int]History{}}
	c.set.Status.Settings = DigestSettings(&c.set.Spec)
	for _, m := range newMade(before) {
		uid := types.UID("uid-" + m.Name)
		c.set.Status.Inventory = append(c.set.Status.Inventory, v1alpha1.GeneratedSource{Name: m.Name, UID: uid, Generator: int32(m.Generator), Cluster: m.Cluster, Hash: m.Hash})
		c.existing[m.Name] = &v1alpha1.Source{ObjectMeta: metav1.ObjectMeta{Name: m.Name, UID: uid, Labels: map[string]string{v1alpha1.LabelSourceSet: "apps"}}}
	}
	c.now = time.Date(2026, 12, 1, 12, 0, 0, 500, time.UTC)
	for i := range c.set.Status.Inventory {
		if o := &c.set.Status.Inventory[i]; o.Cluster != "" {
			o.DroppedTime = &metav1.Time{Time: c.now.Add(-RemovalPause)} // as one whose pause is over
		}
	}
	c.made = Result{Made: newMade(now)}
	return c
}

func newMade(names string) (out []Made) {
	for _, one := range strings.Fields(names) {
		generator, name, _ := strings.Cut(one, "/")
		m := Made{Name: name, Hash: "h", Object: map[string]any{}}
		if generator == "1" {
			m.Generator, m.Cluster = 1, "c-"+name
		}
		out = append(out, m)
	}
	return out
}

// describe returns what is decided, as text.
func (c *decideCase) describe() string {
	d := Decide(Input{Set: c.set, Result: c.made, Existing: c.existing, Barred: c.barred, Histories: c.histories, Now: c.now})
	var out []string
	for _, a := range d.Apply {
		how := "change "
		switch {
		case a.IsNew:
			how = "make "
		case a.SetsBack:
			how = "set back "
		}
		out = append(out, how+a.Name)
	}
	for _, m := range d.Unchanged {
		out = append(out, "leave "+m.Name)
	}
	for _, r := range d.Refused {
		out = append(out, "refuse "+r.Name+" "+string(r.Reason))
	}
	for _, o := range d.Remove {
		out = append(out, "remove "+o.Name)
	}
	for _, o := range d.Paused {
		out = append(out, "pause "+o.Name+" "+o.DroppedTime.Format(time.TimeOnly))
	}
	for _, o := range d.Wait {
		out = append(out, "wait "+o.Name)
	}
	for _, o := range d.Keep {
		out = append(out, "keep "+o.Name+" "+o.Kept)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		before, now string
		change      func(*decideCase)
		want        string
	}{
		"the first time":        {"", "0/a 0/b", nil, "make a, make b"},
		"nothing new":           {"0/a 0/b", "0/a 0/b", nil, "leave a, leave b"},
		"one more":              {"0/a", "0/a 0/b", nil, "leave a, make b"},
		"one less":              {"0/a 0/b", "0/a", nil, "leave a, remove b"},
		"another content":       {"0/a", "0/a", func(c *decideCase) { c.made.Made[0].Hash = "other" }, "change a"},
		"a field of others":     {"0/a", "0/a", func(c *decideCase) { c.made.Made[0].Object["spec"] = map[string]any{"repository": "x"} }, "set back a"},
		"a Source that is gone": {"0/a 0/b", "0/a 0/b", func(c *decideCase) { delete(c.existing, "a") }, "leave b, make a"},
		"dropped and gone":      {"0/a 0/b", "0/a", func(c *decideCase) { delete(c.existing, "b") }, "leave a"},
		"a person's":            {"0/a", "0/a 0/b", func(c *decideCase) { c.existing["b"] = &v1alpha1.Source{} }, "leave a, refuse b NameTaken"},
		"another set's":         {"0/a", "0/a", func(c *decideCase) { c.existing["a"].Labels[v1alpha1.LabelSourceSet] = "other" }, "refuse a NameTaken"},
		"on its way out":        {"0/a", "0/a", func(c *decideCase) { c.existing["a"].DeletionTimestamp = &metav1.Time{} }, "refuse a NotApplied"},
		"labelled by hand": {"", "0/a", func(c *decideCase) {
			c.existing["a"] = &v1alpha1.Source{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{v1alpha1.LabelSourceSet: "apps"}}}
		}, "change a"},
		"nothing at all":          {"0/a 1/b", "", func(c *decideCase) { c.made.Empty = []int{0, 1} }, "keep a GeneratorEmpty, keep b GeneratorEmpty"},
		"one generator is empty":  {"0/a 1/b 1/c", "1/b", func(c *decideCase) { c.made.Empty = []int{0} }, "keep a GeneratorEmpty, leave b, remove c"},
		"none stays":              {"0/a 0/b", "0/c", nil, "keep a EntriesReplaced, keep b EntriesReplaced, make c"},
		"those of others stay":    {"0/a 1/b 1/c", "1/b", nil, "keep a EntriesReplaced, leave b, remove c"},
		"prune: Keep":             {"0/a 0/b", "0/a", func(c *decideCase) { c.set.Spec.Prune = v1alpha1.PruneKeep }, "keep b PruneKeeps, leave a"},
		"other settings":          {"0/a 0/b", "0/a", func(c *decideCase) { c.set.Status.Settings = "other" }, "keep b SettingsChanged, leave a"},
		"not created":             {"0/a 0/b", "0/a", func(c *decideCase) { c.set.Status.Inventory[1].UID = "" }, "keep b Adopted, leave a"},
		"made again by others":    {"0/a 0/b", "0/a", func(c *decideCase) { c.existing["b"].UID = "other" }, "keep b OwnedElsewhere, leave a"},
		"dropped, another set's":  {"0/a 0/b", "0/a", func(c *decideCase) { c.existing["b"].Labels[v1alpha1.LabelSourceSet] = "other" }, "keep b OwnedElsewhere, leave a"},
		"a cluster is barred":     {"1/a 1/b", "1/a", func(c *decideCase) { c.barred["c-b"] = true }, "keep b NotInBoundSet, leave a"},
		"a rewritten history":     {"0/a 0/b", "0/a", func(c *decideCase) { c.histories[0] = HistoryRewritten }, "keep b HistoryRewritten, leave a"},
		"commits not compared":    {"0/a 0/b", "0/a", func(c *decideCase) { c.histories[0] = HistoryUnknown }, "leave a, wait b"},
		"another's history":       {"0/a 0/b", "0/a", func(c *decideCase) { c.histories[1] = HistoryRewritten }, "leave a, remove b"},
		"kept for long":           {"0/a 0/b", "0/a", func(c *decideCase) { c.set.Status.Inventory[1].Kept = "PruneKeeps" }, "keep b PruneKeeps, leave a"},
		"a kept one stays no one": {"0/a 0/b", "0/a", func(c *decideCase) { c.set.Status.Inventory[0].Kept = "GeneratorEmpty" }, "keep b EntriesReplaced, leave a"},
		"of another generator":    {"0/a 0/b", "1/a", func(c *decideCase) { c.made.Made[0].Hash = "h" }, "keep b EntriesReplaced, leave a"},
	} {
		of := newDecideCase(t, c.before, c.now)
		if c.change != nil {
			c.change(of)
		}
		if got := of.describe(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// A Source is removed only while another former entry of its generator stays, and nothing is removed
// where no entry is left. Every former Source is somewhere in the decision.
func TestRemovalsNeedOthersThatStay(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	pick := func() string {
		var out []string
		for i := range 6 {
			if rng.IntN(2) == 0 {
				out = append(out, fmt.Sprintf("%d/s%d", i%2, i))
			}
		}
		return strings.Join(out, " ")
	}
	removed := 0
	for range 2000 {
		before, now := pick(), pick()
		c := newDecideCase(t, before, now)
		d := Decide(Input{Set: c.set, Result: c.made, Existing: c.existing, Now: c.now})
		if len(d.Remove)+len(d.Keep)+len(d.Unchanged) != len(c.set.Status.Inventory) {
			t.Fatalf("%s -> %s: a Source is lost", before, now)
		}
		for _, o := range d.Remove {
			removed++
			if !slices.ContainsFunc(d.Unchanged, func(m Made) bool { return m.Generator == int(o.Generator) }) {
				t.Fatalf("%s -> %s: %s is removed while no other entry stays", before, now, o.Name)
			}
		}
	}
	if removed == 0 {
		t.Error("nothing was ever removed")
	}
}

// A Source that its Cluster drops is removed after a pause, which begins once. Other reasons to keep it go before.
func TestRemovalsByClustersPause(t *testing.T) {
	for name, c := range map[string]struct {
		dropped time.Duration
		change  func(*decideCase)
		want    string
	}{
		"dropped now":        {-1, nil, "leave a, pause b 12:00:00"},
		"dropped before":     {time.Minute, nil, "leave a, pause b 11:59:00"},
		"the pause is over":  {RemovalPause, nil, "leave a, remove b"},
		"settings change":    {time.Minute, func(c *decideCase) { c.set.Status.Settings = "other" }, "keep b SettingsChanged, leave a"},
		"commits are not in": {RemovalPause, func(c *decideCase) { c.histories[1] = HistoryUnknown }, "leave a, wait b"},
	} {
		of := newDecideCase(t, "1/a 1/b", "1/a")
		o := &of.set.Status.Inventory[1]
		if o.DroppedTime = nil; c.dropped >= 0 {
			o.DroppedTime = &metav1.Time{Time: of.now.Add(-c.dropped)}
		}
		if c.change != nil {
			c.change(of)
		}
		if got := of.describe(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	at := func(minute int) v1alpha1.GeneratedSource {
		return v1alpha1.GeneratedSource{DroppedTime: &metav1.Time{Time: time.Date(2026, 12, 1, 12, minute, 0, 0, time.UTC)}}
	}
	d := Decision{Paused: []v1alpha1.GeneratedSource{at(5), at(3), at(4)}}
	if got := d.PauseEnd(); !got.Equal(at(3).DroppedTime.Add(RemovalPause)) {
		t.Error(got)
	}
	if !(&Decision{}).PauseEnd().IsZero() {
		t.Error("a pause without a removal")
	}
}

// The inventory has each name once, and fits into the object with the longest names.
func TestInventoriesAreBounded(t *testing.T) {
	name := func(i int) string { return fmt.Sprintf("%063d", i) }
	var made []Made
	uids := map[string]types.UID{}
	var kept []v1alpha1.GeneratedSource
	for i := range v1alpha1.MaxGeneratedSources {
		made = append(made, Made{Name: name(i), Hash: strings.Repeat("h", 16), Cluster: strings.Repeat("c", 253)})
		uids[name(i)] = types.UID(strings.Repeat("u", 36))
	}
	for i := range 3000 {
		kept = append(kept, v1alpha1.GeneratedSource{Name: name(i), Kept: "PruneKeeps"})
	}
	got, size := NewInventory(made, uids, kept, kept), 0
	for i, o := range got {
		size += len(encodeObject(map[string]any{"name": o.Name, "uid": string(o.UID), "generator": int64(o.Generator), "cluster": o.Cluster, "hash": o.Hash, "kept": o.Kept})) + len(o.Name)
		if i > 0 && got[i-1].Name == o.Name {
			t.Fatalf("%s is in it twice", o.Name)
		}
		if i < len(made) && (o.Name != made[i].Name || o.Kept != "") {
			t.Fatalf("a made Source is not in it: %+v", o)
		}
	}
	if len(got) < len(made) || len(got) > MaxInventory || size > MaxInventoryBytes {
		t.Errorf("%d entries, %d bytes", len(got), size)
	}
	if n := len(NewInventory(nil, nil, kept[:100], kept[:200])); n != 200 {
		t.Errorf("%d entries of short ones", n)
	}
	short := make([]v1alpha1.GeneratedSource, 3000)
	for i := range short {
		short[i].Name = fmt.Sprint(i)
	}
	if n := len(NewInventory(nil, nil, short)); n != MaxInventory {
		t.Errorf("%d entries, want %d", n, MaxInventory)
	}
}

// Only a name that a Cluster can have is the Cluster of an entry.
func TestClusterNamesOfEntries(t *testing.T) {
	for name, want := range map[any]string{"oslo": "oslo", "oslo.no": "oslo.no", "Oslo": "", "a/b": "", strings.Repeat("a", 254): "", int64(3): ""} {
		e := Entry{Parameters: map[string]any{clusterKey: map[string]any{"name": name}}}
		if got := e.ClusterName(); got != want {
			t.Errorf("%v: %q", name, got)
		}
	}
}

func TestOwnersAreNamed(t *testing.T) {
	set := newSet(t, "[]", plainTemplate)
	s := &v1alpha1.Source{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	if got := DescribeOwner(set, s); !strings.Contains(got, "Source web is of no SourceSet") || !strings.Contains(got, "SourceSet apps gives the name") {
		t.Error(got)
	}
	s.Labels = map[string]string{v1alpha1.LabelSourceSet: "other"}
	if got := DescribeOwner(set, s); !strings.Contains(got, "SourceSet other") {
		t.Error(got)
	}
}

func TestFindInterruption(t *testing.T) {
	before := &v1alpha1.SourceSet{ObjectMeta: metav1.ObjectMeta{UID: "u", Generation: 2}}
	changed := func(change func(*v1alpha1.SourceSet)) *v1alpha1.SourceSet {
		now := before.DeepCopy()
		change(now)
		return now
	}
	if why := FindInterruption(before, before.DeepCopy()); why != "" {
		t.Error(why)
	}
	for want, now := range map[string]*v1alpha1.SourceSet{
		"the SourceSet is deleted":   nil,
		"the SourceSet is deleted ":  changed(func(s *v1alpha1.SourceSet) { s.UID = "other" }),
		"the SourceSet is deleted  ": changed(func(s *v1alpha1.SourceSet) { s.DeletionTimestamp = &metav1.Time{} }),
		"the SourceSet is suspended": changed(func(s *v1alpha1.SourceSet) { s.Spec.Suspend = true }),
		"the SourceSet has changed":  changed(func(s *v1alpha1.SourceSet) { s.Generation++ }),
	} {
		if got := FindInterruption(before, now); got != strings.TrimSpace(want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestFindOwner(t *testing.T) {
	o := v1alpha1.GeneratedSource{Name: "a", UID: "u"}
	live := func(uid types.UID, set string) metav1.Object {
		return &metav1.ObjectMeta{UID: uid, Labels: map[string]string{v1alpha1.LabelSourceSet: set}}
	}
	if why := FindOwner(o, live("u", "apps"), "apps"); why != "" {
		t.Error(why)
	}
	for _, c := range []struct {
		o    v1alpha1.GeneratedSource
		live metav1.Object
	}{{o, live("v", "apps")}, {o, live("u", "other")}, {v1alpha1.GeneratedSource{Name: "a"}, live("", "apps")}} {
		if why := FindOwner(c.o, c.live, "apps"); why != atoll.ReasonOwnedElsewhere {
			t.Errorf("%+v: %s", c, why)
		}
	}
}

func TestNewInventory(t *testing.T) {
	got := NewInventory(newMade("0/b 1/a"), map[string]types.UID{"a": "u"}, []v1alpha1.GeneratedSource{{Name: "c", Kept: "PruneKeeps"}}, nil)
	if len(got) != 3 || got[0].Name != "a" || got[0].UID != "u" || got[0].Generator != 1 || got[0].Cluster != "c-a" || got[1].Name != "b" || got[1].UID != "" || got[1].Hash != "h" || got[2].Kept != "PruneKeeps" {
		t.Errorf("%+v", got)
	}
}
