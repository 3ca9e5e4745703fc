package admission

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/state"
)

// References counts the objects that refer to another one.
type References interface {
	// FindReferrers counts what refers to an object, by kind. A kind to which nothing refers has none.
	FindReferrers(kind string, key types.NamespacedName) []state.Referrers
}

const strategyEffect = "what they place keeps its rollout, and nothing new is placed until it exists again"

// namespaceKind counts the namespaces in which a ClusterRolloutStrategy is enforced.
const namespaceKind = "Namespace"

// effectsOfMissing is what comes of it when an object of the kind is deleted to which others refer.
var effectsOfMissing = map[string]string{
	"Placement":              "what they place stays in its clusters, and nothing new is placed until it exists again",
	"ClusterPlacement":       "what they place stays in its clusters, and nothing new is placed until it exists again",
	"RolloutStrategy":        strategyEffect,
	"ClusterRolloutStrategy": strategyEffect,
	"ClusterSet":             "without it they reach fewer clusters; `kubectl delete --dry-run=server` shows what would leave",
}

// warnOfReferrers warns the user that deletes an object to which others refer. The text has numbers and no names,
// because the user may not be allowed to read the others. A dry run has its plan in place of it.
func (p *AdmissionPlugin) warnOfReferrers(ctx context.Context, a admission.Attributes) {
	kind := a.GetKind()
	if a.GetOperation() != admission.Delete || a.GetSubresource() != "" || a.IsDryRun() || kind.Group != v1alpha1.GroupVersion.Group {
		return
	}
	effect, ok := effectsOfMissing[kind.Kind]
	hub, ready := p.currentHub()
	if !ok || !ready || hub.References == nil {
		return
	}
	var counts []string
	for _, r := range hub.References.FindReferrers(kind.Kind, types.NamespacedName{Namespace: a.GetNamespace(), Name: a.GetName()}) {
		if r.Kind == namespaceKind {
			warning.AddWarning(ctx, "", fmt.Sprintf("was enforced in %s: Bundles there get the rollout that their policies state", phrase.CountNoun(r.Count, "namespace")))
			continue
		}
		counts = append(counts, fmt.Sprintf("%s (%d)", r.Kind, r.Count))
	}
	if len(counts) > 0 {
		warning.AddWarning(ctx, "", "still named by "+strings.Join(counts, ", ")+": "+effect)
	}
}
