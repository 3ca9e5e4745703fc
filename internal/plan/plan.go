package plan

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/render"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
)

// Input is what is, and what would be, of every Bundle that would be touched.
type Input struct {
	Bundles []Change
	// Placements of which what they publish may change.
	Placements []Placement
	// Refused and Unchecked writes, which have no part in what would be.
	Refused, Unchecked []Refusal
	// Visible tells what items the asker may read, and Known what Bundles; nil: all.
	Visible func(atoll.ItemKey) bool
	Known   func(claim.BundleID) bool
	// Views of clusters as they are and as they would be, by name.
	ViewsBefore, ViewsAfter map[string]atoll.ClusterView
	// Unplaced templates among those that would be written, and why.
	Unplaced []Unplaced
	// More Bundles that were not looked at.
	More int
	// Holding is why the hub holds after a rewind; empty: it does not.
	Holding string
}

// Change of one Bundle.
type Change struct {
	ID     claim.BundleID
	Source v1alpha1.BundleSource
	New    bool
	// Anew: the revision is none that the Bundle has.
	Anew bool
	// Placement that it would have, and whether it has another.
	Placement v1alpha1.PlacementSpec
	Edited    bool
	// Revision that rows are to reach, and its content.
	Revision string
	Content  *atoll.Content
	// Contents of the revisions that rows are at, by name.
	Contents      map[string]*atoll.Content
	Before, After map[string]atoll.RowSpec
	Decision      schedule.Decision
	Held          *rollout.Plan
	Waiting       []rollout.Wait
	Short         []schedule.Shortage
	Problems      []claim.Problem
	// Waits says why nothing more is known.
	Waits string
}

// Plan is what would change.
type Plan struct {
	// Changes: something would.
	Changes bool     `json:"changes"`
	Bundles []Bundle `json:"bundles"`
	// Placements that would publish other clusters.
	Placements []Placement `json:"placements,omitempty"`
	// Hidden counts Bundles that would change and that the asker may not know.
	Hidden int `json:"hidden,omitempty"`
	// More Bundles were not looked at, since there are too many.
	More     int        `json:"more,omitempty"`
	Unplaced []Unplaced `json:"unplaced,omitempty"`
	// Refused objects: the hub would not take them.
	Refused []Refusal `json:"refused,omitempty"`
	// Unchecked objects were not offered to the hub's admission, and why.
	Unchecked []Refusal `json:"unchecked,omitempty"`
	// Holding is why the hub would carry nothing out now.
	Holding string `json:"holding,omitempty"`
}

// Refusal of an object.
type Refusal struct {
	Object string `json:"object"`
	Why    string `json:"why"`
}

// Unplaced is a template that nobody would place.
type Unplaced struct {
	Key atoll.ItemKey `json:"key"`
	Why string        `json:"why"`
}

// Placement of which the decisions that it publishes would change.
type Placement struct {
	// Namespace is empty for a ClusterPlacement.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Chosen counts the clusters that it would choose.
	Chosen  int      `json:"chosen"`
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	// NoFit: no cluster would fit; what is chosen stays. Unmet says which minimum of the
	// spread could not be had.
	NoFit bool   `json:"noFit,omitempty"`
	Unmet string `json:"unmet,omitempty"`
}

// Bundle that would change.
type Bundle struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Source such as "PropagationPolicy web".
	Source string `json:"source"`
	New    bool   `json:"new,omitempty"`
	// Rows that would change, those that change alike together, and how many would not.
	Rows      []Row `json:"rows,omitempty"`
	Unchanged int   `json:"unchanged,omitempty"`
	// NoFit: no cluster would fit; what runs is kept. Unmet says which minimum of the
	// spread could not be had.
	NoFit bool   `json:"noFit,omitempty"`
	Unmet string `json:"unmet,omitempty"`
	// Full clusters: the capacity that they state would keep the Bundle out, or its row at
	// the revision that it is at.
	Full []Full `json:"full,omitempty"`
	// Short workloads: not all of their replicas would have a place.
	Short []Short `json:"short,omitempty"`
	// Unweighed: no cluster that would be chosen has a static weight, and each would keep
	// the replicas that it has.
	Unweighed bool `json:"unweighed,omitempty"`
	// Unknown clusters that the placement would name: there are none.
	Unknown []string `json:"unknown,omitempty"`
	// Later lists clusters that would get other overrides with the next change of what is
	// sent, and not now.
	Later []string `json:"later,omitempty"`
	// Frozen items would be placed by nobody any more, and stay at their last content.
	Frozen []string `json:"frozen,omitempty"`
	// Held removals would wait for a confirmation.
	Held []string `json:"held,omitempty"`
	// Problems with items that could not be sent.
	Problems []Refusal `json:"problems,omitempty"`
	Waits    string    `json:"waits,omitempty"`
}

// Full is a cluster whose stated capacity is used up.
type Full struct {
	Cluster string `json:"cluster"`
	// Stays: the Bundle has a row there, which would stay as it is.
	Stays bool   `json:"stays,omitempty"`
	Why   string `json:"why"`
}

// Short is a divided workload.
type Short struct {
	Item     string `json:"item"`
	Replicas int64  `json:"replicas"`
	Unplaced int64  `json:"unplaced"`
}

// RowChange says what would become of a row.
type RowChange string

// The changes.
const (
	Added   RowChange = "Added"
	Removed RowChange = "Removed"
	Changed RowChange = "Changed"
)

// Row of a Bundle in each of some clusters in which the same would become of it.
type Row struct {
	// Clusters by name; at least one.
	Clusters []string  `json:"clusters"`
	Change   RowChange `json:"change"`
	// Why the cluster is chosen or left.
	Why string `json:"why,omitempty"`
	// Orphaned: what is removed is only forgotten.
	Orphaned bool `json:"orphaned,omitempty"`
	// Waits for something even when all that can be reached does what it is told.
	Waits string `json:"waits,omitempty"`
	// Replicas assigned, by item, where they would change.
	Replicas map[string]Replicas `json:"replicas,omitempty"`
	// Items that would come, change or go in a cluster that stays.
	Items []Item `json:"items,omitempty"`
}

// Replicas before and after; nil: there is no such share.
type Replicas struct {
	Before *int64 `json:"before,omitempty"`
	After  *int64 `json:"after,omitempty"`
}

// Item that would change in one cluster.
type Item struct {
	Key    atoll.ItemKey `json:"key"`
	Change RowChange     `json:"change"`
	Fields []Field       `json:"fields,omitempty"`
	// Error says why it could not be rendered: the cluster would keep what it has.
	Error string `json:"error,omitempty"`
}

// Of what would be, what changes.
func Of(in Input) Plan {
	p := Plan{Bundles: []Bundle{}, More: in.More, Holding: in.Holding, Refused: in.Refused, Unchecked: in.Unchecked}
	for _, u := range in.Unplaced {
		if in.sees(u.Key) {
			p.Unplaced = append(p.Unplaced, u)
		}
	}
	slices.SortFunc(p.Unplaced, func(a, b Unplaced) int { return a.Key.Compare(b.Key) })
	for i := range in.Bundles {
		c := &in.Bundles[i]
		b := (&comparing{in: &in, Change: c, known: map[string][]Item{}, renderers: map[*atoll.Content]*render.Renderer{}, rendered: map[string]side{}}).bundle()
		switch {
		case len(b.Rows)+len(b.Held)+len(b.Problems)+len(b.Later)+len(b.Frozen) == 0 && !(c.Edited && (b.Unweighed || len(b.Unknown) > 0)) && b.Waits == "" && !b.NoFit && !b.stays():
		case in.Known != nil && !in.Known(c.ID):
			p.Hidden++
			p.Changes = p.Changes || len(b.Rows) > 0
		default:
			p.Bundles = append(p.Bundles, b)
			p.Changes = p.Changes || len(b.Rows) > 0
		}
	}
	slices.SortFunc(p.Bundles, func(a, b Bundle) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	for _, pl := range in.Placements {
		if changes := len(pl.Added)+len(pl.Removed) > 0; changes || pl.NoFit {
			p.Placements, p.Changes = append(p.Placements, pl), p.Changes || changes
		}
	}
	slices.SortFunc(p.Placements, func(a, b Placement) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return p
}

func (in *Input) sees(key atoll.ItemKey) bool { return in.Visible == nil || in.Visible(key) }

// comparing of one Bundle.
type comparing struct {
	*Change
	in *Input
	// known comparisons of rows, by what is rendered on both sides.
	known map[string][]Item
	// renderers of contents, and rendered rows, by what they are rendered from.
	renderers map[*atoll.Content]*render.Renderer
	rendered  map[string]side
}

// side of a comparison: what a row renders, and a hash of it; empty where there is none.
type side struct {
	items []atoll.Rendered
	hash  string
}

func (c *comparing) bundle() Bundle {
	b := Bundle{
		Namespace: c.ID.Namespace, Name: c.ID.Name, Source: c.Source.Kind + " " + c.Source.Name, New: c.New,
		NoFit: c.Decision.NoFit && c.Content != nil && len(c.Content.Items) > 0, Unmet: c.Decision.Unmet, Waits: c.Waits,
	}
	for _, p := range c.Problems {
		if p.Key.Kind == "" || c.in.sees(p.Key) && !p.Key.IsSecret() {
			b.Problems = append(b.Problems, Refusal{strings.TrimPrefix(p.Key.Kind+"/"+p.Key.Name, "/"), p.Err.Error()})
		} else {
			b.Problems = append(b.Problems, Refusal{"an object", "cannot be sent; an Event on it would say why"})
		}
	}
	if c.Held != nil {
		b.Held = c.held()
	}
	c.lacking(&b)
	b.Unweighed, b.Unknown, b.Frozen = c.Decision.Unweighed(), c.unknown(), c.frozen()
	waits := map[string]string{}
	for _, w := range c.Waiting {
		if waits[w.Cluster] = w.For; w.Who == rollout.WhoConfirm && c.Held != nil {
			waits[w.Cluster] = "a confirmation" // of a plan that is none yet: Held says of what
		}
	}
	clusters := maps.Clone(c.Before)
	if clusters == nil {
		clusters = map[string]atoll.RowSpec{}
	}
	maps.Copy(clusters, c.After)
	alike, seesAll := map[string]int{}, c.seesAll()
	for _, cluster := range slices.Sorted(maps.Keys(clusters)) {
		row, items, changes := c.row(cluster)
		if !changes {
			b.Unchanged++
			if c.later(cluster) {
				b.Later = append(b.Later, cluster)
			}
			continue
		}
		if seesAll {
			row.Waits = waits[cluster]
		}
		short := row
		short.Items = nil // items says which they are
		key := atoll.HashJSON(short) + items
		at, known := alike[key]
		if !known {
			at = len(b.Rows)
			alike[key], b.Rows = at, append(b.Rows, row)
		}
		b.Rows[at].Clusters = append(b.Rows[at].Clusters, cluster)
	}
	return b
}

// lacking lists what has no place.
func (c *comparing) lacking(b *Bundle) {
	for _, v := range c.Decision.Verdicts {
		switch {
		case v.Full != "":
			b.Full = append(b.Full, Full{v.Cluster, true, v.Full})
		case v.Outcome == schedule.Out && v.Filter == schedule.FilterCapacity:
			b.Full = append(b.Full, Full{v.Cluster, false, v.Reason})
		}
	}
	for _, s := range c.Short {
		if c.in.sees(s.Key) {
			b.Short = append(b.Short, Short{s.Key.Kind + "/" + s.Key.Name, s.Replicas, s.Unplaced})
		}
	}
}

// stays tells whether a row would not follow, for want of capacity.
func (b *Bundle) stays() bool {
	return slices.ContainsFunc(b.Full, func(f Full) bool { return f.Stays })
}

// seesAll tells whether the asker may read all that the Bundle would hold or remove.
func (c *comparing) seesAll() bool {
	if c.Content == nil {
		return true
	}
	return !slices.ContainsFunc(c.Content.Items, func(i atoll.Item) bool { return !c.in.sees(i.Key) }) &&
		!slices.ContainsFunc(c.Content.Tombstones, func(t atoll.Tombstone) bool { return !c.in.sees(t.Key) })
}

// held removals, as far as the asker may read what they are of.
func (c *comparing) held() []string {
	if c.seesAll() {
		return c.Held.Lines
	}
	return []string{atoll.RowRemovalHeld + ": removals of items that you may not all read"}
}

// going tells rows that are on their way out, or out already.
func going(row atoll.RowSpec, has bool) bool {
	return !has || row.Phase == atoll.RowRemoving || row.Phase == atoll.RowLeaving || row.Phase == atoll.RowHeld
}

// gone tells whether the Cluster is there and would not be.
func (c *comparing) gone(cluster string) bool {
	_, was := c.in.ViewsBefore[cluster]
	_, is := c.in.ViewsAfter[cluster]
	return was && !is
}

// row of a cluster, without its name; items tells equal Items from others.
func (c *comparing) row(cluster string) (out Row, items string, changes bool) {
	was, had := c.Before[cluster]
	is, has := c.After[cluster]
	if v, ok := c.Decision.Verdict(cluster); ok {
		out.Why = v.Reason
	}
	if c.gone(cluster) {
		out.Why = "its Cluster would be gone; what runs there is given up"
	}
	switch gone, goes := going(was, had), going(is, has); {
	case gone && goes:
		return out, "", false
	case goes:
		out.Change, out.Orphaned = Removed, c.Content != nil && c.Content.Removal == v1alpha1.RemoveOrphan
		out.Replicas = c.replicas(was, atoll.RowSpec{})
		return out, "", true
	case gone:
		out.Change, out.Why, out.Replicas = Added, "", c.replicas(atoll.RowSpec{}, is)
		out.Items, items = c.items(cluster, nil, &is)
		return out, items, true
	}
	out.Change, out.Replicas = Changed, c.replicas(was, is)
	out.Items, items = c.items(cluster, &was, &is)
	return out, items, len(out.Replicas)+len(out.Items) > 0
}

func (c *comparing) replicas(was, is atoll.RowSpec) (out map[string]Replicas) {
	for item := range was.Assigned {
		c.share(&out, item, was, is)
	}
	for item := range is.Assigned {
		c.share(&out, item, was, is)
	}
	return out
}

func (c *comparing) share(out *map[string]Replicas, item string, was, is atoll.RowSpec) {
	key, err := atoll.ParseItemKey(item)
	before, had := was.Assigned[item]
	after, has := is.Assigned[item]
	if err != nil || !c.in.sees(key) || had && has && before == after {
		return
	}
	var r Replicas
	if had {
		r.Before = &before
	}
	if has {
		r.After = &after
	}
	if *out == nil {
		*out = map[string]Replicas{}
	}
	(*out)[item] = r
}

// items that a row would change in its cluster, and what they follow from. Rows that render
// the same on both sides share the result.
func (c *comparing) items(cluster string, was, is *atoll.RowSpec) ([]Item, string) {
	before := c.render(was, c.in.ViewsBefore[cluster])
	after := c.render(is, c.in.ViewsAfter[cluster])
	key := before.hash + " " + after.hash
	out, ok := c.known[key]
	if !ok {
		out = c.compare(before.items, after.items)
		c.known[key] = out
	}
	return out, key
}

// render a row as it is rendered for its cluster.
func (c *comparing) render(row *atoll.RowSpec, view atoll.ClusterView) side {
	if row == nil {
		return side{}
	}
	content := c.Contents[row.Revision]
	if row.Revision == c.Revision {
		content = c.Content
	}
	if content == nil {
		return side{}
	}
	renderer := c.renderers[content]
	if renderer == nil {
		renderer = render.Compile(content)
		c.renderers[content] = renderer
	}
	rules, variant := renderer.Rules(&view)
	key := row.Rendering(variant) + atoll.HashJSON(rules)
	if known, ok := c.rendered[key]; ok {
		return known
	}
	items, _ := renderer.Render(render.InputOf(*row, rules, &view))
	hashes := make([]string, 0, 2*len(items))
	for i := range items {
		hashes = append(hashes, items[i].Key.String(), items[i].Hash, items[i].Error)
	}
	out := side{items, atoll.HashJSON(hashes)}
	c.rendered[key] = out
	return out
}

func (c *comparing) compare(before, after []atoll.Rendered) (out []Item) {
	old := map[atoll.ItemKey]*atoll.Rendered{}
	for i := range before {
		old[before[i].Key] = &before[i]
	}
	for i := range after {
		now := &after[i]
		was := old[now.Key]
		delete(old, now.Key)
		switch {
		case !c.in.sees(now.Key) || was != nil && was.Hash == now.Hash:
		case was == nil:
			out = append(out, Item{Key: now.Key, Change: Added, Error: now.Error})
		case now.Error != "":
			out = append(out, Item{Key: now.Key, Change: Changed, Error: now.Error})
		default:
			out = append(out, Item{Key: now.Key, Change: Changed, Fields: fieldsOf(was, now)})
		}
	}
	for key := range old {
		if c.in.sees(key) {
			out = append(out, Item{Key: key, Change: Removed})
		}
	}
	slices.SortFunc(out, func(a, b Item) int { return a.Key.Compare(b.Key) })
	return out
}
