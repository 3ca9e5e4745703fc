package atoll

import (
	"testing"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
)

// A confirmation is of the objects that would go, by this removal, and nothing else about them.
func TestThePlanOfACleanedCluster(t *testing.T) {
	web := ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	conf := ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "web"}
	was := HashCleanPlan("u", "monday", []ItemKey{web, conf})
	for _, tc := range []struct {
		name  string
		uid   string
		asked string
		items []ItemKey
		same  bool
	}{
		{"again", "u", "monday", []ItemKey{web, conf}, true},
		{"in another order, and from two Bundles", "u", "monday", []ItemKey{conf, web, conf}, true},
		{"asked for again", "u", "tuesday", []ItemKey{web, conf}, false},
		{"another cluster", "v", "monday", []ItemKey{web, conf}, false},
		{"an item on top", "u", "monday", []ItemKey{web, conf, {Kind: "ConfigMap", Namespace: "shop", Name: "more"}}, false},
		{"an item less", "u", "monday", []ItemKey{web}, false},
		{"in another namespace", "u", "monday", []ItemKey{web, {Kind: "ConfigMap", Namespace: "shop2", Name: "web"}}, false},
		{"of another kind", "u", "monday", []ItemKey{web, {Kind: "Secret", Namespace: "shop", Name: "web"}}, false},
		{"of another group", "u", "monday", []ItemKey{{Group: "example.com", Kind: "Deployment", Namespace: "shop", Name: "web"}, conf}, false},
		{"under another name", "u", "monday", []ItemKey{web, {Kind: "ConfigMap", Namespace: "shop", Name: "web2"}}, false},
		{"nothing in the Bundles", "u", "monday", nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := HashCleanPlan(tc.uid, tc.asked, tc.items); (got == was) != tc.same || len(got) != 16 {
				t.Errorf("%s after %s", got, was)
			}
		})
	}
}

func TestWhatAPlanIsAbout(t *testing.T) {
	web := enginev1.BundleRef{Namespace: "shop", Name: "web", UID: "b"}
	for phase, want := range map[RowPhase]bool{RowActive: true, RowLeaving: true, RowHeld: true, RowRemoving: false} {
		if got := IsCleanable(web, RowSpec{Phase: phase}); got != want {
			t.Errorf("%s: %t", phase, got)
		}
	}
	if IsCleanable(enginev1.BundleRef{Namespace: "shop", Name: "web", UID: "n"}, RowSpec{Phase: RowPending}) {
		t.Error("a row that orders nothing is cleaned")
	}
	if IsCleanable(enginev1.BundleRef{Namespace: "shop", UID: "n"}, RowSpec{Phase: RowVacant}) {
		t.Error("a row that remembers an empty namespace has something to confirm")
	}
	conf := ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "web"}
	if (RowSpec{Absent: []string{conf.String()}}).IncludesItem(conf) || !(RowSpec{Absent: []string{"x"}}).IncludesItem(conf) {
		t.Error("what override rules keep out is not there, and all else is")
	}
}
