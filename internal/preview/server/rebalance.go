package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver/respond"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/placer"
	"atoll.dev/atoll/internal/placer/decisions"
	"atoll.dev/atoll/internal/preview"
	"atoll.dev/atoll/internal/state"
)

// rebalanceRequest names Bundles, or policies and Placements whose Bundles are meant, or all
// Bundles of a namespace or of the hub.
type rebalanceRequest struct {
	Objects   []rebalanceObject `json:"objects,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
	All       bool              `json:"all,omitempty"`
	// After is the Next of the answer before.
	After string `json:"after,omitempty"`
}

// rebalanceObject is of a kind of atoll.dev; without a namespace for those that have none.
type rebalanceObject struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

func (o rebalanceObject) String() string {
	return o.Kind + " " + strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
}

const (
	// maxRebalanceBytes is how many bytes of a request are read.
	maxRebalanceBytes = 1 << 20
	// maxRebalancedBundles Bundles are foreseen in one answer.
	maxRebalancedBundles = 500
)

// ServeRebalance answers, or refuses with a Status as the API does.
func (s *Server) ServeRebalance(w http.ResponseWriter, r *http.Request) {
	p, err := s.answerRebalance(w, r)
	respond.WriteAnswer(w, p, r.URL.Query(), err)
}

func (s *Server) answerRebalance(w http.ResponseWriter, r *http.Request) (preview.Rebalance, error) {
	none := preview.Rebalance{}
	if err := respond.CheckParameters(r.URL.Query(), "rebalance", "output", "all"); err != nil {
		return none, err
	}
	var in rebalanceRequest
	if err := decodeBody(w, r, "rebalance", maxRebalanceBytes, &in); apierrors.IsMethodNotSupported(err) {
		return none, err
	} else if err != nil {
		return none, badRequest("the body does not name what to rebalance: %v", err)
	}
	x, err := s.newQuery(r)
	if err != nil {
		return none, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), planTimeout)
	defer cancel()
	return x.planRebalance(ctx, in)
}

// planRebalance computes what the requested rebalance would do.
func (x *userQuery) planRebalance(ctx context.Context, in rebalanceRequest) (preview.Rebalance, error) {
	t := &rebalanceTargets{userQuery: x, bundles: map[string]state.Bundle{}, requestTime: x.now}
	if len(in.Objects) == 0 {
		t.addAllBundles(ctx, in)
	}
	for _, o := range in.Objects {
		t.addObject(ctx, o)
	}
	list := slices.SortedFunc(maps.Values(t.bundles), func(a, b state.Bundle) int { return strings.Compare(bundleSortKey(a), bundleSortKey(b)) })
	list = slices.DeleteFunc(list, func(b state.Bundle) bool { return bundleSortKey(b) <= in.After })
	out := preview.Rebalance{}
	if len(list) > maxRebalancedBundles {
		list = list[:maxRebalancedBundles]
		out.Next = bundleSortKey(list[maxRebalancedBundles-1])
	}
	supposed, err := t.supposeRebalance(ctx, list)
	if err != nil {
		return out, err
	}
	after, err := x.sources.Placer.PreviewBundles(ctx, nil, supposed)
	if err != nil {
		return out, err
	}
	p := preview.Input{
		MayReadItem: func(k atoll.ItemKey) bool { return x.mayGet(ctx, k) },
		ViewsBefore: map[string]atoll.ClusterView{},
	}
	for _, c := range x.sources.State.Clusters.List() {
		p.ViewsBefore[c.Name] = x.sources.State.Views.ViewForOverrides(c)
	}
	p.ViewsAfter = p.ViewsBefore
	if why, holding := x.sources.State.Hub.HoldReason(); holding {
		p.Holding = why
	}
	placing := sync.OnceValue(func() map[v1alpha1.PolicyRef]bool { return x.listPlacingPolicies(nil) })
	for _, f := range after {
		p.Bundles = append(p.Bundles, x.bundleChange(ctx, f, nil, placing))
	}
	out.Plan = preview.BuildPlan(p)
	out.Looked, out.Asked = len(supposed), atoll.FormatRebalanceTime(t.requestTime)
	if in.After == "" {
		out.Refused = t.refused
		for _, pl := range t.placements {
			out.Looked++
			if c, changes := t.placementChange(pl); changes {
				out.Placements, out.Changes = append(out.Placements, c), true
			}
		}
	}
	return out, nil
}

// bundleSortKey orders Bundles by namespace and name.
func bundleSortKey(b state.Bundle) string { return b.Ref.Namespace + "/" + b.Ref.Name }

// rebalanceTargets are what is to be placed from scratch.
type rebalanceTargets struct {
	*userQuery
	bundles    map[string]state.Bundle // by UID
	placements []state.Placement
	refused    []preview.Refusal
	// requestTime is later than any rebalance before.
	requestTime time.Time
}

// addAllBundles adds the Bundles that may be rebalanced, of the hub or of a namespace.
func (t *rebalanceTargets) addAllBundles(ctx context.Context, in rebalanceRequest) {
	for _, b := range t.sources.State.Bundles.List() {
		if in.All && t.mayKnowBundle(ctx, atoll.ItemKey{Namespace: "\x00"}, b.Ref.Namespace, b.Ref.Name) || in.Namespace != "" && b.Ref.Namespace == in.Namespace {
			t.addBundle(ctx, b, rebalanceObject{})
		}
	}
}

// addBundle adds a Bundle, unless the asker may not have it placed from scratch.
func (t *rebalanceTargets) addBundle(ctx context.Context, b state.Bundle, of rebalanceObject) {
	kind := "Bundle"
	if b.Ref.Namespace == "" {
		kind = "ClusterBundle"
	}
	me := rebalanceObject{kind, b.Ref.Namespace, b.Ref.Name}
	if !t.mayKnowBundle(ctx, atoll.ItemKey{Namespace: "\x00"}, me.Namespace, me.Name) {
		t.refuseObject(cmp.Or(of, me), atoll.ReasonPermissionMissing, "you may not read what it places")
		return
	}
	if err := t.plugin.MayRebalance(ctx, t.user, me.Namespace, me.Name, b.Spec.Source); err != nil {
		t.refuseObject(me, atoll.ReasonPermissionMissing, err.Error())
		return
	}
	t.bundles[b.Ref.UID] = b
	t.advanceRebalanceTime(b.Meta.Annotations)
}

// advanceRebalanceTime moves the request time past the last rebalance.
func (t *rebalanceTargets) advanceRebalanceTime(annotations map[string]string) {
	if last := atoll.RebalanceRequestedAt(annotations); !t.requestTime.Truncate(time.Millisecond).After(last) {
		t.requestTime = last.Add(time.Millisecond)
	}
}

func (t *rebalanceTargets) refuseObject(o rebalanceObject, reason atoll.Reason, why string) {
	t.refused = append(t.refused, preview.Refusal{Object: o.String(), Why: why, Reason: reason})
}

// addObject adds what was named: a Bundle, or what makes some.
func (t *rebalanceTargets) addObject(ctx context.Context, o rebalanceObject) {
	if !t.mayGet(ctx, atoll.ItemKey{Group: v1alpha1.GroupVersion.Group, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}) {
		t.refuseObject(o, atoll.ReasonPermissionMissing, "you may not read it")
		return
	}
	switch o.Kind {
	case "Bundle", "ClusterBundle":
		if b, ok := t.sources.State.Bundles.GetByName(o.Namespace, o.Name); ok {
			t.addBundle(ctx, b, o)
		} else {
			t.refuseObject(o, atoll.ReasonNotFound, "the hub has none")
		}
	case v1alpha1.SourcePropagationPolicy, v1alpha1.SourceClusterPropagationPolicy:
		if !t.policyExists(o) {
			t.refuseObject(o, atoll.ReasonNotFound, "the hub has none")
		} else if !t.addPolicyBundles(ctx, o) {
			t.refuseObject(o, atoll.ReasonSelectsNothing, "it places nothing: `atoll explain` shows why")
		}
	case "Placement", "ClusterPlacement":
		t.addPlacement(ctx, o)
	default:
		t.refuseObject(o, atoll.ReasonOtherKind, fmt.Sprintf("what is placed from scratch is a Bundle, or those of a policy or Placement: `atoll explain %s/%s` names them", strings.ToLower(o.Kind), o.Name))
	}
}

// policyExists reports whether the hub has the policy.
func (t *rebalanceTargets) policyExists(o rebalanceObject) (has bool) {
	if o.Kind == v1alpha1.SourcePropagationPolicy {
		_, has = t.sources.State.Policies.GetPropagationPolicy(o.Namespace, o.Name)
	} else {
		_, has = t.sources.State.Policies.GetClusterPropagationPolicy(o.Name)
	}
	return has
}

// addPolicyBundles adds the Bundles that a policy makes. any is true when there are some.
func (t *rebalanceTargets) addPolicyBundles(ctx context.Context, o rebalanceObject) (any bool) {
	for _, b := range t.sources.State.Bundles.List() {
		if b.Spec.Source.Kind == o.Kind && b.Spec.Source.Name == o.Name && (o.Namespace == "" || b.Ref.Namespace == o.Namespace) {
			any = true
			t.addBundle(ctx, b, o)
		}
	}
	return any
}

// addPlacement takes what it publishes, and the Bundles of the policies that refer to it.
func (t *rebalanceTargets) addPlacement(ctx context.Context, o rebalanceObject) {
	key := atoll.ItemKey{Group: v1alpha1.GroupVersion.Group, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
	pl, ok := t.sources.State.Placements.Get(types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
	switch {
	case !ok:
		t.refuseObject(o, atoll.ReasonNotFound, "the hub has none")
		return
	case !t.plugin.MayUpdate(ctx, t.user, key):
		t.refuseObject(o, atoll.ReasonPermissionMissing, fmt.Sprintf("a user that has it placed from scratch must be able to update it, and %q may not", t.user.GetName()))
		return
	}
	t.placements = append(t.placements, pl)
	t.advanceRebalanceTime(pl.Meta.Annotations)
	kind, policies := state.PoliciesOfPlacement(t.sources.State.Policies, types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
	for _, p := range policies {
		t.addPolicyBundles(ctx, rebalanceObject{Kind: kind, Namespace: p.Namespace, Name: p.Name})
	}
}

// supposeRebalance supposes a request to place the Bundles from scratch. Those that have no
// Revision yet have nothing placed.
func (t *rebalanceTargets) supposeRebalance(ctx context.Context, list []state.Bundle) (out []placer.SupposedBundle, err error) {
	for _, b := range list {
		latest, ok := t.sources.State.Revisions.LatestOfBundle(b.Ref.UID)
		if !ok {
			continue
		}
		s := placer.SupposedBundle{Bundle: b, Revision: latest.Name}
		if s.Content, err = t.sources.State.Revisions.GetContent(ctx, latest.Name); err != nil {
			return nil, err
		}
		s.Bundle.Meta.Annotations = t.withRebalanceAnnotation(b.Meta.Annotations)
		out = append(out, s)
	}
	return out, nil
}

func (t *rebalanceTargets) withRebalanceAnnotation(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	if out == nil {
		out = map[string]string{}
	}
	out[atoll.AnnotationRebalance] = atoll.FormatRebalanceTime(t.requestTime)
	return out
}

// placementChange returns what a Placement would change, were it placed from scratch.
func (t *rebalanceTargets) placementChange(pl state.Placement) (c preview.PlacementChange, changes bool) {
	pl.Meta.Annotations = t.withRebalanceAnnotation(pl.Meta.Annotations)
	foreseen := t.sources.Decisions.PreviewPlacements(decisions.SupposedTables{Placements: singlePlacement{pl}}, []types.NamespacedName{pl.Key()})[0]
	before, after := foreseen.Before, foreseen.After
	c.Namespace, c.Name = pl.Meta.Namespace, pl.Meta.Name
	for _, name := range after {
		if _, had := slices.BinarySearch(before, name); had {
			c.Unchanged++
		} else {
			c.Added = append(c.Added, name)
		}
	}
	for _, name := range before {
		if _, has := slices.BinarySearch(after, name); !has {
			c.Removed = append(c.Removed, name)
		}
	}
	return c, len(c.Added)+len(c.Removed) > 0
}

// singlePlacement is the table of one Placement, as it would be.
type singlePlacement struct{ placement state.Placement }

func (a singlePlacement) Get(key types.NamespacedName) (state.Placement, bool) {
	return a.placement, a.placement.Key() == key
}
