package server

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver/respond"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/fleetlist"
	"atoll.dev/atoll/internal/refusal"
	"atoll.dev/atoll/internal/state"
)

var searchEndpoint = endpoint{name: "fleet/search", parameters: []string{"q", "namespace", "limit"}, defaultLimit: fleetlist.DefaultFound, maxLimit: fleetlist.MaxFound}

// searchedKind is a kind that a search finds.
type searchedKind struct {
	kind       string
	resource   string
	namespaced bool
}

// searchedKinds are all of them, in the order of answers.
var searchedKinds = []searchedKind{
	{"Bundle", "bundles", true},
	{"ClusterBundle", "clusterbundles", false},
	{"Cluster", clusterResource, false},
	{"Source", "sources", true},
	{"PropagationPolicy", "propagationpolicies", true},
	{"ClusterPropagationPolicy", "clusterpropagationpolicies", false},
	{"OverridePolicy", "overridepolicies", true},
	{"ClusterOverridePolicy", "clusteroverridepolicies", false},
	{"Placement", "placements", true},
	{"ClusterPlacement", "clusterplacements", false},
}

// searchAnswer is what a search found.
type searchAnswer struct {
	// Found are the best objects of each kind.
	Found []fleetlist.Named `json:"found"`
	// Refused are the kinds that the user may not list: in all namespaces, or in the one that the request names.
	Refused []string `json:"refused,omitempty"`
}

// ServeSearch answers with the objects whose names, titles or namespaces have the words of a text.
func (s *Server) ServeSearch(w http.ResponseWriter, r *http.Request) {
	answer, err := s.searchNames(r)
	if err != nil {
		respond.WriteError(w, err)
		return
	}
	respond.WriteJSON(w, http.StatusOK, answer)
}

func (s *Server) searchNames(r *http.Request) (answer searchAnswer, err error) {
	q, err := s.readQuestion(r, searchEndpoint)
	if err != nil {
		return answer, err
	}
	if _, err := fleetlist.NewSearch(q.values.Get("q"), q.limit); err != nil {
		return answer, badRequest(err)
	}
	visible := visibleNames{byKind: map[string]*visibleKind{}}
	for _, k := range searchedKinds {
		namespace, allowed := s.searchedNamespace(r.Context(), q, k)
		if !allowed {
			answer.Refused = append(answer.Refused, k.kind)
			continue
		}
		found, err := fleetlist.NewSearch(q.values.Get("q"), q.limit)
		if err != nil {
			return answer, badRequest(err)
		}
		visible.byKind[k.kind] = &visibleKind{found, namespace}
	}
	if len(visible.byKind) == 0 {
		why := fmt.Errorf("a search finds what the API lists, and %q may list none of the kinds; a person without rights on all namespaces names one by namespace", q.user.GetName())
		return answer, refusal.WithReason(atoll.ReasonPermissionMissing, apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "bundles"}, "", why))
	}
	if err := s.offerNames(r.Context(), q, visible); err != nil {
		return answer, err
	}
	answer.Found = []fleetlist.Named{}
	for _, k := range searchedKinds {
		if v := visible.byKind[k.kind]; v != nil {
			answer.Found = append(answer.Found, v.search.Found()...)
		}
	}
	return answer, nil
}

// searchedNamespace returns the namespace in which the user may list a kind; the empty one for all. false: in none that the request
// names.
func (s *Server) searchedNamespace(ctx context.Context, q question, k searchedKind) (namespace string, allowed bool) {
	if s.hasRight(ctx, q.user, "list", resource{name: k.resource}) {
		return "", true
	}
	namespace = q.values.Get("namespace")
	return namespace, k.namespaced && namespace != "" && s.hasRight(ctx, q.user, "list", resource{k.resource, namespace})
}

// visibleNames are the kinds that a search looks at, each within what the user may list.
type visibleNames struct{ byKind map[string]*visibleKind }

type visibleKind struct {
	search *fleetlist.Search
	// namespace is the only one; empty for all.
	namespace string
}

// offerName has an object taken into account, if the user may list it.
func (v visibleNames) offerName(n fleetlist.Named) {
	if k := v.byKind[n.Kind]; k != nil && (k.namespace == "" || k.namespace == n.Namespace) {
		k.search.Offer(n)
	}
}

// hasKind reports whether the user may list one of the kinds at all.
func (v visibleNames) hasKind(kinds ...string) bool {
	for _, kind := range kinds {
		if v.byKind[kind] != nil {
			return true
		}
	}
	return false
}

// offerNames passes over the tables of the kinds that the user may list.
func (s *Server) offerNames(ctx context.Context, q question, v visibleNames) error {
	end, err := s.awaitPass(ctx)
	if err != nil {
		return err
	}
	defer end()
	if v.hasKind("Cluster") {
		s.offerClusters(q.tables, v)
	}
	if v.hasKind("Bundle", "ClusterBundle") {
		q.tables.Bundles.EachName(func(ref enginev1.BundleRef, source v1alpha1.BundleSource) { v.offerName(bundleName(ref, source)) })
	}
	if k := v.byKind["Source"]; k != nil {
		for _, one := range q.tables.Sources.InNamespace(k.namespace) {
			named := fleetlist.Named{Kind: "Source", Namespace: one.Namespace, Name: one.Name}
			if one.Spec.Suspend {
				named.Detail = "Suspended"
			}
			v.offerName(named)
		}
	}
	q.tables.Policies.EachKey(func(key state.PolicyKey) {
		v.offerName(fleetlist.Named{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name})
	})
	q.tables.Placements.EachKey(func(key types.NamespacedName) {
		kind := "Placement"
		if key.Namespace == "" {
			kind = "ClusterPlacement"
		}
		v.offerName(fleetlist.Named{Kind: kind, Namespace: key.Namespace, Name: key.Name})
	})
	return nil
}

func (s *Server) offerClusters(t *state.HubTables, v visibleNames) {
	s.fleet.prepareIndex(t)
	s.fleet.mu.RLock()
	defer s.fleet.mu.RUnlock()
	rows := s.fleet.index.Rows()
	for i := range rows {
		v.offerName(fleetlist.Named{Kind: "Cluster", Name: rows[i].Name(), Detail: rows[i].State.String()})
	}
}

// bundleName returns the name of a Bundle, with the name of the annotated object as its title.
func bundleName(ref enginev1.BundleRef, source v1alpha1.BundleSource) fleetlist.Named {
	out := fleetlist.Named{Kind: "Bundle", Namespace: ref.Namespace, Name: ref.Name}
	if ref.Namespace == "" {
		out.Kind = "ClusterBundle"
	}
	if source.Kind == v1alpha1.SourceAnnotation {
		out.Title = source.Name
	}
	return out
}
