package schedule

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// oneReplacement are versions of a cluster that serves autoscaling/v1 of HorizontalPodAutoscalers alone.
type oneReplacement struct{}

func (oneReplacement) ListReplacements(apiVersion, kind string) []string {
	if apiVersion == "autoscaling/v2" && kind == "HorizontalPodAutoscaler" {
		return []string{"autoscaling/v1"}
	}
	return nil
}

func (oneReplacement) ConvertObject(map[string]any, string) (map[string]any, error) {
	panic("placement converts nothing")
}

func TestAKindInAnotherVersionIsServedUnlessAFieldIsLost(t *testing.T) {
	const autoscaler = "autoscaling/v2/HorizontalPodAutoscaler"
	older := func(c *Cluster) {
		c.APIs, c.Versions = APIsOf([]string{"autoscaling/v1/HorizontalPodAutoscaler", "apps/v1/Deployment"}), oneReplacement{}
	}
	for name, tc := range map[string]struct {
		cluster        Cluster
		terms          PlacementTerms
		filter, reason string
		code           atoll.Reason
	}{
		"serves it": {newCluster("a", servingKinds(autoscaler)), PlacementTerms{Kinds: []string{autoscaler}}, "", "", ""},
		"serves another version, which holds all": {
			newCluster("a", older), PlacementTerms{Kinds: []string{autoscaler}, VersionLosses: VersionLosses{autoscaler: {"autoscaling/v1": ""}}}, "", "", "",
		},
		"serves another version, which was not looked at": {newCluster("a", older), PlacementTerms{Kinds: []string{autoscaler}}, "", "", ""},
		"serves another version, which loses a field": {
			newCluster("a", older), PlacementTerms{Kinds: []string{"apps/v1/Deployment", autoscaler}, VersionLosses: VersionLosses{autoscaler: {"autoscaling/v1": "cannot hold /spec/x"}}},
			FilterVersions, "does not serve " + autoscaler + ", which the bundle holds, and what it serves cannot replace it: autoscaling/v1 cannot hold /spec/x", atoll.ReasonVersionLosesFields,
		},
		"serves another version, and an older hub read the template": {
			newCluster("a", older), PlacementTerms{Kinds: []string{autoscaler}, FixedKinds: []string{autoscaler}, VersionLosses: VersionLosses{autoscaler: {"autoscaling/v1": ""}}}, FilterKinds,
			"does not serve " + autoscaler + ", which the bundle holds, and serves autoscaling/v1 in place of it: edit the template, which an older hub read, to get it there in another version", atoll.ReasonKindNotServed,
		},
		"serves no version": {
			newCluster("a", servingKinds("apps/v1/Deployment")), PlacementTerms{Kinds: []string{autoscaler}}, FilterKinds,
			"does not serve " + autoscaler + ", which the bundle holds: install its definition or API service there, or place it with the bundle", atoll.ReasonKindNotServed,
		},
		"serves another version of one kind, and none of the other": {
			newCluster("a", older), PlacementTerms{Kinds: []string{autoscaler, "x.io/v1/Thing"}}, FilterKinds,
			"does not serve x.io/v1/Thing, which the bundle holds: install its definition or API service there, or place it with the bundle", atoll.ReasonKindNotServed,
		},
		"not known": {newCluster("a"), PlacementTerms{Kinds: []string{autoscaler}, VersionLosses: VersionLosses{autoscaler: {"autoscaling/v1": "cannot hold /spec/x"}}}, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, refused := tc.terms.CompilePlacement().firstRefusal(&tc.cluster, true)
			if refused != (tc.filter != "") || r.filter != tc.filter || r.reason != tc.reason {
				t.Errorf("refused %t by %q: %s", refused, r.filter, r.reason)
			}
			if v := (&Verdict{Filter: tc.filter}); refused && v.ReasonCode() != tc.code {
				t.Errorf("the reason is %s", v.ReasonCode())
			}
			if refused && !r.agentReported {
				t.Error("what an agent reports takes something away")
			}
		})
	}
}
