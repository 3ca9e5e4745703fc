package decisions

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// annotationChosen of a decision tells under which placement its clusters were last found
// to be chosen, in the words of rows, and since when, in Unix seconds, they are the same: by
// that drift is told from an edit, and a dwell is counted.
const annotationChosen = "atoll.dev/chosen"

// remembered gives what a row would say of a cluster that was chosen.
func remembered(d state.Decision, c v1alpha1.ClusterDecision) atoll.RowSpec {
	since, placement, _ := strings.Cut(d.Meta.Annotations[annotationChosen], " ")
	at, _ := strconv.ParseInt(since, 10, 64) // of a decision that says nothing: long ago
	return atoll.RowSpec{UID: c.ClusterUID, Phase: atoll.RowActive, Placement: placement, Since: at}
}

// remember what the decision was made under, in each object that it is in. Where nothing
// could be had, all is as it was.
func (l *layout) remember(now []state.Decision, d schedule.Decision) {
	if d.NoFit {
		return
	}
	placement := ""
	for _, v := range d.Verdicts {
		if v.Outcome == schedule.Placed {
			placement = v.Placement
			break
		}
	}
	moved := map[string]bool{}
	for i := range l.write {
		l.write[i].Meta.Annotations = maps.Clone(l.write[i].Meta.Annotations)
		note(&l.write[i], strconv.FormatInt(time.Now().Unix(), 10), placement)
		moved[l.write[i].Meta.Name] = true
	}
	for _, is := range now {
		since, was, _ := strings.Cut(is.Meta.Annotations[annotationChosen], " ")
		dropped := slices.ContainsFunc(l.drop, func(d state.Decision) bool { return d.Meta.Name == is.Meta.Name })
		if was == placement || moved[is.Meta.Name] || dropped {
			continue
		}
		is.Meta.Annotations = maps.Clone(is.Meta.Annotations)
		note(&is, since, placement)
		l.write = append(l.write, is)
	}
}

func note(d *state.Decision, since, placement string) {
	if d.Meta.Annotations == nil {
		d.Meta.Annotations = map[string]string{}
	}
	d.Meta.Annotations[annotationChosen] = since + " " + placement
}

// soonest of two times, of which zero means never.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
