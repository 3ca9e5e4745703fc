package bundlecontent

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
)

// labelCache holds parsed selections, and labels of items as they were sent, for one call of Next.
type labelCache struct {
	selectors  map[string]labels.Selector
	sentLabels map[atoll.ItemKey]labels.Set
}

// ParseSelection returns the selector of a selection. An invalid selection, which no interpreter
// returns, selects nothing.
func ParseSelection(s atoll.Selection) labels.Selector {
	read, err := labels.Parse(s.Labels)
	if err != nil {
		return labels.Nothing()
	}
	return read
}

func (l *labelCache) selectorFor(s atoll.Selection) labels.Selector {
	read, ok := l.selectors[s.Labels]
	if !ok {
		if l.selectors == nil {
			l.selectors = map[string]labels.Selector{}
		}
		read = ParseSelection(s)
		l.selectors[s.Labels] = read
	}
	return read
}

func (l *labelCache) labelsOf(sent *atoll.Item) labels.Set {
	set, ok := l.sentLabels[sent.Key]
	if !ok {
		if l.sentLabels == nil {
			l.sentLabels = map[atoll.ItemKey]labels.Set{}
		}
		set = parseItemLabels(sent)
		l.sentLabels[sent.Key] = set
	}
	return set
}

// matchesSelections returns whether selections of interpreters match an item by the labels with
// which it was sent last.
func (p *contentBuilder) matchesSelections(answers *atoll.InterpreterAnswers, prev *atoll.Item) bool {
	return slices.ContainsFunc(answers.Selections, func(s atoll.Selection) bool {
		return s.SelectsKey(prev.Key) && p.labelCache.selectorFor(s).Matches(p.labelCache.labelsOf(prev))
	})
}

// selectedDependencies returns what an item depends on by labels. A frozen item gains no
// dependencies.
func (p *contentBuilder) selectedDependencies(item *atoll.Item) (out []atoll.ItemKey) {
	if item.Interpreted == nil {
		return nil
	}
	for _, s := range item.Interpreted.Selections {
		for _, key := range p.templates.SelectedKeys(s) {
			t, ok := p.templates.TemplateOf(key)
			switch {
			case !ok, key == item.Key, item.State != "" && p.previous[key] == nil:
			case policymatch.UnselectableReason(policymatch.SubjectFromObject(t)) != "": // as for selectors that name nothing
			default:
				out = append(out, key)
			}
		}
	}
	return out
}

// freezeUnreferenced freezes former dependencies that nothing needs and that no user removed: those that
// an interpreter's edit left out, and those whose own labels no longer match. Their own
// dependencies stay with them.
func (p *contentBuilder) freezeUnreferenced(needed map[atoll.ItemKey]bool) {
	lost := p.listUnneeded(needed)
	if len(lost) == 0 {
		return
	}
	var kept []atoll.ItemKey
	for _, key := range slices.SortedFunc(maps.Keys(p.next), atoll.ItemKey.Compare) {
		answers := p.next[key].Interpreted
		if answers == nil || len(answers.KeptDependencies)+len(answers.Selections) == 0 || p.next[key].State == atoll.ItemRemovalHeld {
			continue
		}
		for _, dep := range lost {
			if p.isDecided(dep) {
				continue
			}
			if _, found := slices.BinarySearchFunc(answers.KeptDependencies, dep, atoll.ItemKey.Compare); !found && !p.matchesSelections(answers, p.previous[dep]) {
				continue
			}
			if _, ok := p.findTemplateOrDecideItem(dep); ok && p.previous[dep] != nil {
				p.freezeItem(dep, atoll.ItemUnreferenced)
				kept = append(kept, dep)
			}
		}
	}
	p.freezeDependencies(kept, needed, atoll.ItemUnreferenced)
}

// listUnneeded returns the former dependencies that nothing needs and of which nothing is decided.
func (p *contentBuilder) listUnneeded(needed map[atoll.ItemKey]bool) (lost []atoll.ItemKey) {
	for key, prev := range p.previous {
		if prev.Dependency && !needed[key] && !p.isDecided(key) {
			lost = append(lost, key)
		}
	}
	slices.SortFunc(lost, atoll.ItemKey.Compare)
	return lost
}

// collectSelections returns the selections of the items that follow their templates.
func (p *contentBuilder) collectSelections() (out []atoll.Selection) {
	for _, item := range p.next {
		if item.Interpreted != nil && item.State == "" {
			out = append(out, item.Interpreted.Selections...)
		}
	}
	slices.SortFunc(out, atoll.Selection.Compare)
	return slices.Compact(out)
}
