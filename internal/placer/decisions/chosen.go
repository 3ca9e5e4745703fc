package decisions

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// formerAnnotationChosen of a decision that v0.1.0 wrote holds status.chosenSince, in Unix seconds,
// and status.placementFingerprint. It is read until the decision is written again.
const formerAnnotationChosen = "atoll.dev/chosen"

// choiceOf returns since when the clusters of a decision are the same, and the fingerprint of
// their placement. They distinguish drift from an edit, and measure dwell times. The zero time
// means long ago.
func choiceOf(d state.Decision) (since metav1.Time, fingerprint string) {
	if d.Status.ChosenSince != nil {
		return *d.Status.ChosenSince, d.Status.PlacementFingerprint
	}
	seconds, fingerprint, former := strings.Cut(d.Meta.Annotations[formerAnnotationChosen], " ")
	if !former {
		return metav1.Time{}, d.Status.PlacementFingerprint
	}
	if at, err := strconv.ParseInt(seconds, 10, 64); err == nil {
		since = metav1.Unix(at, 0)
	}
	return since, fingerprint
}

// rowFromDecision returns the row that stands for a cluster that was chosen.
func rowFromDecision(d state.Decision, c v1alpha1.ClusterDecision) atoll.RowSpec {
	row := atoll.RowSpec{UID: c.ClusterUID, Phase: atoll.RowActive}
	since, fingerprint := choiceOf(d)
	if row.PlacementFingerprint = fingerprint; !since.IsZero() {
		row.Since = since.Unix()
	}
	return row
}

// recordChoiceInDecisions records the placement of its decision in each object. A decision that fits nowhere
// changes nothing.
func (l *objectChanges) recordChoiceInDecisions(now []state.Decision, d schedule.Decision) {
	if d.NoFit {
		return
	}
	fingerprint := ""
	for _, v := range d.Verdicts {
		if v.Outcome == schedule.OutcomePlaced {
			fingerprint = v.PlacementFingerprint
			break
		}
	}
	moved := map[string]bool{}
	for i := range l.toWrite {
		setChoice(&l.toWrite[i], metav1.Now().Rfc3339Copy(), fingerprint)
		moved[l.toWrite[i].Meta.Name] = true
	}
	for _, is := range now {
		since, was := choiceOf(is)
		dropped := slices.ContainsFunc(l.toDelete, func(d state.Decision) bool { return d.Meta.Name == is.Meta.Name })
		if was == fingerprint || moved[is.Meta.Name] || dropped {
			continue
		}
		setChoice(&is, since, fingerprint)
		l.toWrite = append(l.toWrite, is)
	}
}

// setChoice sets the two fields in place of the former annotation.
func setChoice(d *state.Decision, since metav1.Time, fingerprint string) {
	d.Status.ChosenSince, d.Status.PlacementFingerprint = nil, fingerprint
	if !since.IsZero() {
		d.Status.ChosenSince = &since
	}
	if _, former := d.Meta.Annotations[formerAnnotationChosen]; former {
		d.Meta.Annotations = maps.Clone(d.Meta.Annotations)
		delete(d.Meta.Annotations, formerAnnotationChosen)
	}
}

// earliestTime returns the earlier of two times; zero means never.
func earliestTime(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
