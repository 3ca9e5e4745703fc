package hub

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bind"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/explain"
	"atoll.dev/atoll/internal/place"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// mostBundles of a policy are explained, those that wait for something first.
const mostBundles = 20

// namespaced tells whether the kind is; known is false for kinds that cannot be
// explained.
func (x *explainer) namespaced(key atoll.ItemKey) (namespaced, known bool) {
	if key.Group == v1alpha1.GroupVersion.Group {
		switch key.Kind {
		case "Bundle", v1alpha1.SourcePropagationPolicy, "Placement":
			return true, true
		case "ClusterBundle", v1alpha1.SourceClusterPropagationPolicy, "ClusterPlacement":
			return false, true
		}
		return false, false
	}
	return x.parts.state.Templates.Namespaced(key.Group, key.Kind)
}

// unexplained says why a kind cannot be explained.
func unexplained(key atoll.ItemKey) string {
	gk := schema.GroupKind{Group: key.Group, Kind: key.Kind}
	switch {
	case key.Group == v1alpha1.GroupVersion.Group && strings.HasSuffix(key.Kind, "OverridePolicy"):
		return "override policies change what is placed: explain an object that it selects, and the answer says which rule set what"
	case key.Group == v1alpha1.GroupVersion.Group && key.Kind == "Cluster":
		return fmt.Sprintf("a Cluster is not placed: `atoll get clusters` says how it is, `atoll get rows -A --cluster %s` what it runs", key.Name)
	case atoll.OwnKind(gk):
		return fmt.Sprintf("a %s is not placed: explain an object, a policy, a Placement or a Bundle", key.Kind)
	case state.NeverTemplate(gk):
		return fmt.Sprintf("objects of kind %s are made by machinery and are never placed", gk)
	}
	return fmt.Sprintf("the hub serves no kind %s that could be placed", gk)
}

// explain from what the tables say now and what the deciding functions make of it.
func (x *explainer) explain(ctx context.Context, key atoll.ItemKey) (explain.Explanation, error) {
	in := explain.Input{Object: key, Now: x.now, Visible: func(k atoll.ItemKey) bool { return x.mayGet(ctx, k) }}
	if why, holding := x.parts.state.Hub.Holding(); holding {
		in.Holding = why
	}
	var bundles []state.Bundle
	var err error
	if key.Group == v1alpha1.GroupVersion.Group {
		bundles = x.ofAtoll(ctx, key, &in)
	} else if bundles, err = x.ofTemplate(ctx, key, &in); err != nil {
		return explain.Explanation{}, err
	}
	if !in.Exists && len(bundles) == 0 {
		return explain.Explanation{}, apierrors.NewNotFound(schema.GroupResource{Group: key.Group, Resource: strings.ToLower(key.Kind)}, key.Name)
	}
	if len(bundles) > mostBundles {
		slices.SortStableFunc(bundles, func(a, b state.Bundle) int {
			return cmp.Compare(min(len(b.Status.WaitsFor), 1), min(len(a.Status.WaitsFor), 1))
		})
		in.MoreBundles, bundles = len(bundles)-mostBundles, bundles[:mostBundles]
	}
	in.Interpreters = x.parts.state.Policies.Interpreters()
	if len(bundles) > 0 || in.Claim != nil && in.Claim.Winner != nil {
		in.Failures = x.failures(key, bundles)
	}
	for _, b := range bundles {
		one, err := x.bundle(ctx, b)
		if err != nil {
			return explain.Explanation{}, err
		}
		in.Bundles = append(in.Bundles, one)
	}
	return explain.Explain(in), nil
}

// ofAtoll gives the Bundle that was asked about, or those of a policy; of a Placement none.
func (x *explainer) ofAtoll(ctx context.Context, key atoll.ItemKey, in *explain.Input) (out []state.Bundle) {
	st := x.parts.state
	switch key.Kind {
	case "Bundle", "ClusterBundle":
		b, ok := st.Bundles.ByName(key.Namespace, key.Name)
		if in.Exists = ok; ok {
			x.annotation(b, in)
			out = append(out, b)
		}
		return out
	case "Placement", "ClusterPlacement":
		pl, d, published, ok := x.parts.decisions.Explain(types.NamespacedName{Namespace: key.Namespace, Name: key.Name})
		if in.Exists = ok; ok {
			in.Chosen = &explain.Chosen{UID: string(pl.Meta.UID), Spec: pl.Spec, Decision: d, Published: published}
		}
		return nil
	case v1alpha1.SourcePropagationPolicy:
		if p, ok := st.Policies.PropagationPolicy(key.Namespace, key.Name); ok {
			in.Exists, in.Policy = true, x.policy(key, p.Generation, &p.Spec, p.Status)
		}
	default:
		if p, ok := st.Policies.ClusterPropagationPolicy(key.Name); ok {
			in.Exists, in.Policy = true, x.policy(key, p.Generation, &p.Spec, p.Status)
		}
	}
	for _, b := range st.Bundles.List() {
		if b.Spec.Source.Kind == key.Kind && b.Spec.Source.Name == key.Name && x.mayKnow(ctx, key, b.Ref.Namespace, b.Ref.Name) &&
			(key.Namespace == "" || b.Ref.Namespace == key.Namespace) {
			out = append(out, b)
		}
	}
	return out
}

// policy that was asked about: what it selects, and what its status says is wrong. That the
// Placement that it refers to is missing is looked up, since the status comes later.
func (x *explainer) policy(key atoll.ItemKey, generation int64, spec *v1alpha1.PropagationSpec, status v1alpha1.PropagationStatus) *explain.Policy {
	out := &explain.Policy{}
	for _, rs := range spec.ResourceSelectors {
		what := "every " + rs.Kind
		if rs.Name != "" {
			what = rs.Kind + " " + rs.Name
		} else if rs.LabelSelector != nil {
			what += " with " + metav1.FormatLabelSelector(rs.LabelSelector)
		}
		if key.Namespace == "" && rs.Namespace != "" {
			what += " in namespace " + rs.Namespace
		}
		out.Selects = append(out.Selects, what)
	}
	applied := meta.FindStatusCondition(status.Conditions, bind.ConditionApplied)
	out.Problem = x.parts.bind.Unplaced(claim.BundleID{Namespace: key.Namespace}, v1alpha1.BundleSource{Kind: key.Kind, Name: key.Name})
	if out.Problem == "" && applied != nil && applied.Status == metav1.ConditionFalse && applied.ObservedGeneration == generation &&
		applied.Reason == bind.ReasonCannotSend {
		out.Problem = applied.Message
	}
	return out
}

// annotation of a namespace, where the Bundle comes from one.
func (x *explainer) annotation(b state.Bundle, in *explain.Input) {
	if b.Spec.Source.Kind == v1alpha1.SourceNamespaceAnnotation {
		x.scope(b.Ref.Namespace, in)
	}
}

// scope notes the annotation of a namespace and what it leaves out.
func (x *explainer) scope(namespace string, in *explain.Input) {
	if ns, ok := x.parts.state.Namespaces.Get(namespace); ok {
		in.Annotation = ns.Annotations[atoll.AnnotationClusters]
	}
	for _, s := range x.parts.bind.Skipped(namespace) {
		in.Skipped = append(in.Skipped, explain.Skipped{Key: s.Key, Why: s.Why})
	}
}

// ofTemplate notes who places the template, and gives the Bundles that it is in, of
// a Namespace also the one that its annotation makes.
func (x *explainer) ofTemplate(ctx context.Context, key atoll.ItemKey, in *explain.Input) ([]state.Bundle, error) {
	st := x.parts.state
	if !st.Templates.Synced(key.Group, key.Kind) {
		return nil, starting(fmt.Sprintf("objects of kind %s are being read", key.Kind))
	}
	ids := x.parts.bind.Involved(key)
	if t, ok := st.Templates.Get(key); ok {
		in.Exists, in.Version = true, t.GroupVersionKind().Version
		if at := t.GetDeletionTimestamp(); at != nil {
			in.DeletedAt = &at.Time
		} else if why, ok := x.parts.bind.Explain(key); ok {
			in.Claim = x.claim(ctx, key, why)
			if why.Winner != nil && !slices.Contains(ids, why.Bundle) {
				ids = append(ids, why.Bundle)
			}
		}
	}
	var out []state.Bundle
	for _, b := range st.Bundles.List() {
		id := claim.BundleID{Namespace: b.Ref.Namespace, Name: b.Ref.Name}
		mine := slices.Contains(ids, id) || b.Ref.Namespace == key.Namespace && x.buries(ctx, b, key, in)
		if isNamespace(key) && b.Ref.Namespace == key.Name && b.Spec.Source.Kind == v1alpha1.SourceNamespaceAnnotation {
			mine = true
		}
		if mine && x.mayKnow(ctx, key, b.Ref.Namespace, b.Ref.Name) {
			out = append(out, b)
		}
	}
	switch {
	case key.Namespace != "":
		x.scope(key.Namespace, in)
		in.Barred = len(st.Sets.Bound(key.Namespace)) == 0
	case isNamespace(key):
		x.scope(key.Name, in)
	}
	return out, nil
}

func isNamespace(key atoll.ItemKey) bool { return key.Group == "" && key.Kind == "Namespace" }

// buries tells whether the Bundle still has a tombstone for a template that is
// deleted. A content that cannot be read is as good as none here.
func (x *explainer) buries(ctx context.Context, b state.Bundle, key atoll.ItemKey, in *explain.Input) bool {
	if in.Exists && in.DeletedAt == nil {
		return false
	}
	latest, ok := x.parts.state.Revisions.Latest(b.Ref.UID)
	if !ok {
		return false
	}
	content, err := x.parts.state.Revisions.Content(ctx, latest.Name)
	return err == nil && slices.ContainsFunc(content.Tombstones, func(t atoll.Tombstone) bool { return t.Key == key })
}

func (x *explainer) claim(ctx context.Context, key atoll.ItemKey, why bind.Explanation) *explain.Claim {
	c := &explain.Claim{Why: why.Why, Skipped: why.Skipped}
	if why.Winner != nil {
		winner := candidate(*why.Winner)
		c.Winner, c.Waits = &winner, cmp.Or(x.parts.bind.Homeless(why.Bundle), x.parts.bind.Unplaced(why.Bundle, why.Winner.Source))
	}
	for i, o := range why.Others {
		other := candidate(o)
		if i < len(why.Lost) {
			other.Lost = why.Lost[i]
		}
		c.Others = append(c.Others, other)
	}
	for _, id := range why.Needed {
		if x.mayKnow(ctx, key, id.Namespace, id.Name) {
			c.NeededBy = append(c.NeededBy, strings.TrimPrefix(id.String(), "/"))
		}
	}
	return c
}

func candidate(c claim.Candidate) explain.Candidate {
	out := explain.Candidate{Kind: c.Source.Kind, Name: c.Source.Name, Matched: c.Matched}
	if c.Spec != nil {
		out.Priority = c.Spec.Priority
	}
	return out
}

// bundle is all that is known of one: its rows, the next step that would be taken
// now, and what its overrides set.
func (x *explainer) bundle(ctx context.Context, b state.Bundle) (explain.Bundle, error) {
	st := x.parts.state
	p, err := x.parts.place.Preview(ctx, b)
	if err != nil {
		return explain.Bundle{}, fmt.Errorf("what is next for bundle %s/%s: %w", b.Ref.Namespace, b.Ref.Name, err)
	}
	out := explain.Bundle{
		Ref: b.Ref, Spec: b.Spec, Status: b.Status, Created: b.Meta.CreationTimestamp.Time, Decision: x.discreet(ctx, b, p), Output: p.Output,
		Rebalance: atoll.RebalanceAsked(b.Meta.Annotations),
		Numbers:   map[string]int64{}, Rows: map[string]rollout.Row{}, Away: map[string]time.Time{}, Kept: map[string]string{},
	}
	for _, r := range st.Revisions.OfBundle(b.Ref.UID) {
		out.Numbers[r.Name], out.Latest = r.Spec.Number, r.Name
	}
	contents, views := map[string]*atoll.Content{}, map[string]atoll.ClusterView{}
	read := func(name string) {
		if _, known := contents[name]; !known && name != "" {
			// One that cannot be read any more explains nothing.
			contents[name], _ = st.Revisions.Content(ctx, name)
		}
	}
	read(out.Latest)
	out.Content = contents[out.Latest]
	for _, row := range p.Rows {
		one := rollout.Row{Spec: row.Spec, Status: row.Status, Online: st.Clusters.Online(row.Spec.UID)}
		if c, ok := st.Clusters.Get(row.Cluster); ok {
			one.CheckIn, views[row.Cluster] = c.Spec.CheckIn(), st.Views.Stated(c)
			if ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterReady); ready != nil && ready.Status != metav1.ConditionTrue {
				out.Away[row.Cluster] = ready.LastTransitionTime.Time
			}
			x.noteKept(ctx, c, out.Kept)
		}
		out.Rows[row.Cluster] = one
		read(row.Spec.Revision)
	}
	out.Provenance = explain.Provenance(out.Rows, contents, views)
	return out, nil
}

// noteKept says what keeps the agent that the hub runs for the cluster: in full to who
// may read the Cluster, since it says where the member is.
func (x *explainer) noteKept(ctx context.Context, c *v1alpha1.Cluster, kept map[string]string) {
	cond := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterPushed)
	if cond == nil || cond.Status == metav1.ConditionTrue || !c.Spec.Pushed() {
		return
	}
	kept[c.Name] = cond.Reason
	if x.mayGet(ctx, atoll.ItemKey{Group: v1alpha1.GroupVersion.Group, Kind: "Cluster", Name: c.Name}) {
		kept[c.Name] += ": " + cond.Message
	}
}

// discreet is the decision without clusters of other tenants: who may not read Clusters
// hears of those that hold the Bundle, and of those in the sets of its namespace.
func (x *explainer) discreet(ctx context.Context, b state.Bundle, p place.Preview) schedule.Decision {
	d := p.Decision
	if b.Ref.Namespace == "" || x.mayGet(ctx, atoll.ItemKey{Group: v1alpha1.GroupVersion.Group, Kind: "Cluster"}) {
		return d
	}
	bound, holds, all := x.parts.state.Sets.Bound(b.Ref.Namespace), map[string]bool{}, len(d.Verdicts)
	for _, r := range p.Rows {
		holds[r.Cluster] = true
	}
	d.Verdicts = slices.DeleteFunc(slices.Clone(d.Verdicts), func(v schedule.Verdict) bool {
		return !holds[v.Cluster] && v.Outcome != schedule.Placed &&
			!slices.ContainsFunc(x.parts.state.Clusters.Sets(v.Cluster), func(s string) bool { return slices.Contains(bound, s) })
	})
	if len(d.Verdicts) < all {
		d = d.Discreet()
	}
	return d
}

// mayKnow tells whether the user may know of a Bundle: it lives with the object that
// the user may read, or the user may read it as well.
func (x *explainer) mayKnow(ctx context.Context, about atoll.ItemKey, namespace, name string) bool {
	if namespace == about.Namespace {
		return true
	}
	kind := "Bundle"
	if namespace == "" {
		kind = "ClusterBundle"
	}
	return x.mayGet(ctx, atoll.ItemKey{Group: v1alpha1.GroupVersion.Group, Kind: kind, Namespace: namespace, Name: name})
}

// mayGet tells whether the user may read an object; by the kind first, since whoever
// may read all of a kind may read each.
func (x *explainer) mayGet(ctx context.Context, key atoll.ItemKey) bool {
	all := key
	all.Name = ""
	for _, k := range []atoll.ItemKey{all, key} {
		may, known := x.seen[k]
		if !known {
			may = x.access.MayGet(ctx, x.user, k)
			x.seen[k] = may
		}
		if may {
			return true
		}
	}
	return false
}
