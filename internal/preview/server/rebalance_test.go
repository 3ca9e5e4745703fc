package server

import (
	"testing"
	"time"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

func TestARebalanceIsLaterThanTheLastOne(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	last := func(at time.Time) map[string]string {
		return map[string]string{atoll.AnnotationRebalance: atoll.FormatRebalanceTime(at)}
	}
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        time.Time
	}{
		"none before":         {nil, now},
		"one before":          {last(now.Add(-time.Hour)), now},
		"one at that time":    {last(now), now.Add(time.Millisecond)},
		"one by a fast clock": {last(now.Add(time.Minute)), now.Add(time.Minute + time.Millisecond)},
	} {
		targets := &rebalanceTargets{requestTime: now}
		targets.advanceRebalanceTime(tc.annotations)
		if !targets.requestTime.Equal(tc.want) {
			t.Errorf("%s: %s, want %s", name, targets.requestTime, tc.want)
		}
	}
}

func TestTheRequestIsAnAnnotationOfACopy(t *testing.T) {
	targets := &rebalanceTargets{requestTime: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)}
	before := map[string]string{"team": "web"}
	got := targets.withRebalanceAnnotation(before)
	if len(before) != 1 || len(got) != 2 || got["team"] != "web" || got[atoll.AnnotationRebalance] != atoll.FormatRebalanceTime(targets.requestTime) {
		t.Errorf("%v of %v", got, before)
	}
	if got := targets.withRebalanceAnnotation(nil); len(got) != 1 {
		t.Errorf("without annotations: %v", got)
	}
}

func TestRefusedTargetsHaveTheirNames(t *testing.T) {
	targets := &rebalanceTargets{}
	targets.refuseObject(rebalanceObject{Kind: "Bundle", Namespace: "shop", Name: "web"}, atoll.ReasonNotFound, "no")
	targets.refuseObject(rebalanceObject{Kind: "ClusterBundle", Name: "base"}, atoll.ReasonNotFound, "no")
	if len(targets.refused) != 2 || targets.refused[0].Object != "Bundle shop/web" || targets.refused[1].Object != "ClusterBundle base" || targets.refused[0].Why != "no" {
		t.Errorf("%+v", targets.refused)
	}
}

func TestNamesMissingFromAnotherList(t *testing.T) {
	list, of := []string{"lima", "oslo", "tokyo"}, []string{"madrid", "oslo"}
	got := selectNamesNotIn(list, of)
	if len(got) != 2 || got[0] != "lima" || got[1] != "tokyo" || list[1] != "oslo" {
		t.Errorf("%v of %v", got, list)
	}
}

func TestBundlesAreOrderedByNamespaceAndName(t *testing.T) {
	b := state.Bundle{Ref: enginev1.BundleRef{Namespace: "shop", Name: "web"}}
	if got := bundleSortKey(b); got != "shop/web" {
		t.Error(got)
	}
}
