package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/place"
	"atoll.dev/atoll/internal/place/decisions"
	"atoll.dev/atoll/internal/plan"
	"atoll.dev/atoll/internal/state"
)

// rebalancePath answers POST with what would change if Bundles, or what Placements
// publish, were placed from scratch, as JSON, or with output=text as text for people;
// all=true leaves nothing of a fleet to a count. The body is a rebalanceRequest. Nothing
// is written: that is done by annotating what would change with the time that is answered.
const rebalancePath = "/atoll/v1alpha1/rebalance"

// rebalanceRequest names Bundles, or policies and Placements whose Bundles are meant, or
// asks about all Bundles of a namespace or of the hub.
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
	// largestRebalance is how many bytes of a request are read.
	largestRebalance = 1 << 20
	// mostRebalanced Bundles are foreseen in one answer.
	mostRebalanced = 500
)

// serveRebalance answers, or refuses with a Status as the API does.
func (l *lateParts) serveRebalance(w http.ResponseWriter, r *http.Request) {
	p, q, err := l.rebalanced(w, r)
	reply(w, p, q, err)
}

func (l *lateParts) rebalanced(w http.ResponseWriter, r *http.Request) (plan.Rebalance, url.Values, error) {
	none, q := plan.Rebalance{}, r.URL.Query()
	for name := range q {
		if !slices.Contains([]string{"timeout", "output", "all"}, name) {
			return none, nil, apierrors.NewBadRequest(fmt.Sprintf("rebalance has no parameter %q; it has output and all", name))
		}
	}
	if r.Method != http.MethodPost {
		return none, nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "rebalance"}, r.Method)
	}
	var in rebalanceRequest
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, largestRebalance))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return none, nil, apierrors.NewBadRequest(fmt.Sprintf("the body does not say what to rebalance: %v", err))
	}
	u, known := request.UserFrom(r.Context())
	if !known {
		return none, nil, apierrors.NewUnauthorized("nobody asks")
	}
	p, ready := l.parts.Get()
	if !ready || !p.bind.Loaded() {
		return none, nil, starting("its tables are being read")
	}
	x := &explainer{parts: p, access: l.plugin, user: u, now: time.Now(), seen: map[atoll.ItemKey]bool{}}
	ctx, cancel := context.WithTimeout(r.Context(), planPatience)
	defer cancel()
	out, err := x.rebalance(ctx, in)
	return out, q, err
}

// rebalance foresees what was asked about.
func (x *explainer) rebalance(ctx context.Context, in rebalanceRequest) (plan.Rebalance, error) {
	t := &rebalanceTargets{explainer: x, bundles: map[string]state.Bundle{}, asked: x.now}
	if len(in.Objects) == 0 {
		t.everything(ctx, in)
	}
	for _, o := range in.Objects {
		t.object(ctx, o)
	}
	list := slices.SortedFunc(maps.Values(t.bundles), func(a, b state.Bundle) int { return strings.Compare(afterOf(a), afterOf(b)) })
	list = slices.DeleteFunc(list, func(b state.Bundle) bool { return afterOf(b) <= in.After })
	out := plan.Rebalance{}
	if len(list) > mostRebalanced {
		list = list[:mostRebalanced]
		out.Next = afterOf(list[mostRebalanced-1])
	}
	supposed, err := t.suppose(ctx, list)
	if err != nil {
		return out, err
	}
	after, err := x.parts.place.Foresee(ctx, nil, supposed)
	if err != nil {
		return out, err
	}
	p := plan.Input{
		Visible:     func(k atoll.ItemKey) bool { return x.mayGet(ctx, k) },
		ViewsBefore: map[string]atoll.ClusterView{},
	}
	for _, c := range x.parts.state.Clusters.List() {
		p.ViewsBefore[c.Name] = atoll.ViewOf(c)
	}
	p.ViewsAfter = p.ViewsBefore
	if why, holding := x.parts.state.Hub.Holding(); holding {
		p.Holding = why
	}
	for _, f := range after {
		p.Bundles = append(p.Bundles, x.change(ctx, f, nil))
	}
	out.Plan = plan.Of(p)
	out.Looked, out.Asked = len(supposed), atoll.FormatRebalance(t.asked)
	if in.After == "" {
		out.Refused = t.refused
		for _, pl := range t.placements {
			out.Looked++
			if c, changes := t.publishes(pl); changes {
				out.Placements, out.Changes = append(out.Placements, c), true
			}
		}
	}
	return out, nil
}

// afterOf orders Bundles by namespace and name.
func afterOf(b state.Bundle) string { return b.Ref.Namespace + "/" + b.Ref.Name }

// rebalanceTargets are what is to be placed from scratch.
type rebalanceTargets struct {
	*explainer
	bundles    map[string]state.Bundle // by UID
	placements []state.Placement
	refused    []plan.Refusal
	// asked is later than any rebalance before.
	asked time.Time
}

// everything that may be rebalanced, of the hub or of a namespace.
func (t *rebalanceTargets) everything(ctx context.Context, in rebalanceRequest) {
	for _, b := range t.parts.state.Bundles.List() {
		if in.All && t.mayKnow(ctx, atoll.ItemKey{Namespace: "\x00"}, b.Ref.Namespace, b.Ref.Name) || in.Namespace != "" && b.Ref.Namespace == in.Namespace {
			t.take(ctx, b, rebalanceObject{})
		}
	}
}

// take a Bundle, unless the asker may not have it placed from scratch.
func (t *rebalanceTargets) take(ctx context.Context, b state.Bundle, of rebalanceObject) {
	kind := "Bundle"
	if b.Ref.Namespace == "" {
		kind = "ClusterBundle"
	}
	me := rebalanceObject{kind, b.Ref.Namespace, b.Ref.Name}
	if !t.mayKnow(ctx, atoll.ItemKey{Namespace: "\x00"}, me.Namespace, me.Name) {
		t.refuse(cmp.Or(of, me), "you may not read what it places")
		return
	}
	if err := t.access.MayRebalance(ctx, t.user, me.Namespace, me.Name, b.Spec.Source); err != nil {
		t.refuse(me, err.Error())
		return
	}
	t.bundles[b.Ref.UID] = b
	t.later(b.Meta.Annotations)
}

// later than the last rebalance.
func (t *rebalanceTargets) later(annotations map[string]string) {
	if last := atoll.RebalanceAsked(annotations); !t.asked.Truncate(time.Millisecond).After(last) {
		t.asked = last.Add(time.Millisecond)
	}
}

func (t *rebalanceTargets) refuse(o rebalanceObject, why string) {
	t.refused = append(t.refused, plan.Refusal{Object: o.String(), Why: why})
}

// object that was named: a Bundle, or what makes some.
func (t *rebalanceTargets) object(ctx context.Context, o rebalanceObject) {
	if !t.mayGet(ctx, atoll.ItemKey{Group: v1alpha1.GroupVersion.Group, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}) {
		t.refuse(o, "you may not read it")
		return
	}
	switch o.Kind {
	case "Bundle", "ClusterBundle":
		if b, ok := t.parts.state.Bundles.ByName(o.Namespace, o.Name); ok {
			t.take(ctx, b, o)
		} else {
			t.refuse(o, "the hub has none")
		}
	case v1alpha1.SourcePropagationPolicy, v1alpha1.SourceClusterPropagationPolicy:
		if !t.exists(o) {
			t.refuse(o, "the hub has none")
		} else if !t.policy(ctx, o) {
			t.refuse(o, "it places nothing: `atoll explain` says why")
		}
	case "Placement", "ClusterPlacement":
		t.placement(ctx, o)
	default:
		t.refuse(o, fmt.Sprintf("what is placed from scratch is a Bundle, or those of a policy or Placement: `atoll explain %s/%s` names them", strings.ToLower(o.Kind), o.Name))
	}
}

// exists tells whether the hub has the policy.
func (t *rebalanceTargets) exists(o rebalanceObject) (has bool) {
	if o.Kind == v1alpha1.SourcePropagationPolicy {
		_, has = t.parts.state.Policies.PropagationPolicy(o.Namespace, o.Name)
	} else {
		_, has = t.parts.state.Policies.ClusterPropagationPolicy(o.Name)
	}
	return has
}

// policy takes the Bundles that one makes.
func (t *rebalanceTargets) policy(ctx context.Context, o rebalanceObject) (any bool) {
	for _, b := range t.parts.state.Bundles.List() {
		if b.Spec.Source.Kind == o.Kind && b.Spec.Source.Name == o.Name && (o.Namespace == "" || b.Ref.Namespace == o.Namespace) {
			any = true
			t.take(ctx, b, o)
		}
	}
	return any
}

// placement takes what it publishes, and the Bundles of the policies that refer to it.
func (t *rebalanceTargets) placement(ctx context.Context, o rebalanceObject) {
	key := atoll.ItemKey{Group: v1alpha1.GroupVersion.Group, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
	pl, ok := t.parts.state.Placements.Get(types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
	switch {
	case !ok:
		t.refuse(o, "the hub has none")
		return
	case !t.access.MayUpdate(ctx, t.user, key):
		t.refuse(o, fmt.Sprintf("whoever has it placed from scratch must be able to update it, and %q may not", t.user.GetName()))
		return
	}
	t.placements = append(t.placements, pl)
	t.later(pl.Meta.Annotations)
	refers := func(ref *v1alpha1.PlacementRef) bool { return ref != nil && ref.Name == o.Name }
	if o.Namespace == "" {
		for _, p := range t.parts.state.Policies.ClusterPropagation() {
			if refers(p.Spec.PlacementRef) {
				t.policy(ctx, rebalanceObject{Kind: v1alpha1.SourceClusterPropagationPolicy, Name: p.Name})
			}
		}
		return
	}
	for _, p := range t.parts.state.Policies.Propagation(o.Namespace) {
		if refers(p.Spec.PlacementRef) {
			t.policy(ctx, rebalanceObject{Kind: v1alpha1.SourcePropagationPolicy, Namespace: p.Namespace, Name: p.Name})
		}
	}
}

// suppose that the Bundles are asked to be placed from scratch. Those that have no
// Revision yet have nothing placed.
func (t *rebalanceTargets) suppose(ctx context.Context, list []state.Bundle) (out []place.Supposed, err error) {
	for _, b := range list {
		latest, ok := t.parts.state.Revisions.Latest(b.Ref.UID)
		if !ok {
			continue
		}
		s := place.Supposed{Bundle: b, Revision: latest.Name}
		if s.Content, err = t.parts.state.Revisions.Content(ctx, latest.Name); err != nil {
			return nil, err
		}
		s.Bundle.Meta.Annotations = t.annotated(b.Meta.Annotations)
		out = append(out, s)
	}
	return out, nil
}

func (t *rebalanceTargets) annotated(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	if out == nil {
		out = map[string]string{}
	}
	out[atoll.AnnotationRebalance] = atoll.FormatRebalance(t.asked)
	return out
}

// publishes what a Placement would, were it placed from scratch.
func (t *rebalanceTargets) publishes(pl state.Placement) (c plan.PlacementChange, changes bool) {
	pl.Meta.Annotations = t.annotated(pl.Meta.Annotations)
	foreseen := t.parts.decisions.Foresee(decisions.Tables{Placements: alone{pl}}, []types.NamespacedName{pl.Key()})[0]
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

// alone is the table of one Placement, as it would be.
type alone struct{ placement state.Placement }

func (a alone) Get(key types.NamespacedName) (state.Placement, bool) {
	return a.placement, a.placement.Key() == key
}
