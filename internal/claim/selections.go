package claim

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"atoll.dev/atoll/internal/atoll"
)

// labelMemo is selections that were read, and labels of items as they were sent, for one
// plan.
type labelMemo struct {
	selectors map[string]labels.Selector
	sent      map[atoll.ItemKey]labels.Set
}

// Labels reads those of a selection. What cannot be read, which nobody writes, selects
// nothing.
func Labels(s atoll.Selection) labels.Selector {
	read, err := labels.Parse(s.Labels)
	if err != nil {
		return labels.Nothing()
	}
	return read
}

func (l *labelMemo) selector(s atoll.Selection) labels.Selector {
	read, ok := l.selectors[s.Labels]
	if !ok {
		if l.selectors == nil {
			l.selectors = map[string]labels.Selector{}
		}
		read = Labels(s)
		l.selectors[s.Labels] = read
	}
	return read
}

func (l *labelMemo) of(sent *atoll.Item) labels.Set {
	set, ok := l.sent[sent.Key]
	if !ok {
		if l.sent == nil {
			l.sent = map[atoll.ItemKey]labels.Set{}
		}
		set = contentLabels(sent)
		l.sent[sent.Key] = set
	}
	return set
}

// means tells whether interpreters' answers mean an item by labels, those with which it was
// sent last.
func (p *planner) means(told *atoll.Interpreted, prev *atoll.Item) bool {
	return slices.ContainsFunc(told.Selections, func(s atoll.Selection) bool {
		return s.Covers(prev.Key) && p.memo.selector(s).Matches(p.memo.of(prev))
	})
}

// selected lists what an item depends on by labels. With one that is frozen nothing comes
// that was not there.
func (p *planner) selected(item *atoll.Item) (out []atoll.ItemKey) {
	if item.Interpreted == nil {
		return nil
	}
	for _, s := range item.Interpreted.Selections {
		for _, key := range p.world.Selected(s) {
			t, ok := p.world.Template(key)
			switch {
			case !ok, key == item.Key, item.State != "" && p.prev[key] == nil:
			case Beyond(SubjectFrom(t)) != "": // as for selectors that name nothing
			default:
				out = append(out, key)
			}
		}
	}
	return out
}

// keepUnnamed freezes the dependencies of the previous content that nothing needs, where no
// user said so: those that an interpreter's edit left out, and those whose own labels do
// not match any more. What they need stays with them.
func (p *planner) keepUnnamed(needed map[atoll.ItemKey]bool) {
	var lost, kept []atoll.ItemKey
	for key, prev := range p.prev {
		if prev.Dependency && !needed[key] && !p.done(key) {
			lost = append(lost, key)
		}
	}
	if len(lost) == 0 {
		return
	}
	slices.SortFunc(lost, atoll.ItemKey.Compare)
	for _, key := range slices.SortedFunc(maps.Keys(p.next), atoll.ItemKey.Compare) {
		told := p.next[key].Interpreted
		if told == nil || len(told.Kept)+len(told.Selections) == 0 || p.next[key].State == atoll.ItemRemovalHeld {
			continue
		}
		for _, dep := range lost {
			if p.done(dep) {
				continue
			}
			if _, found := slices.BinarySearchFunc(told.Kept, dep, atoll.ItemKey.Compare); !found && !p.means(told, p.prev[dep]) {
				continue
			}
			if _, ok := p.template(dep); ok && p.prev[dep] != nil {
				p.freeze(dep, atoll.ItemUnnamed)
				kept = append(kept, dep)
			}
		}
	}
	p.freezeWith(kept, needed, atoll.ItemUnnamed)
}

// selections of the items that follow their templates, whose matches are sent along.
func (p *planner) selections() (out []atoll.Selection) {
	for _, item := range p.next {
		if item.Interpreted != nil && item.State == "" {
			out = append(out, item.Interpreted.Selections...)
		}
	}
	slices.SortFunc(out, atoll.Selection.Compare)
	return slices.Compact(out)
}
