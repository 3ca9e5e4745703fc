package server

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
	"atoll.dev/atoll/internal/apiserver/respond"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/binder"
	"atoll.dev/atoll/internal/placer"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/preview/explain"
	"atoll.dev/atoll/internal/refusal"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// maxExplainedBundles of a policy are explained, those that wait for something first.
const maxExplainedBundles = 20

// isNamespacedKind reports whether the kind is; known is false for kinds that cannot be
// explained.
func (x *userQuery) isNamespacedKind(key atoll.ItemKey) (isNamespacedKind, known bool) {
	if key.Group == v1alpha1.GroupVersion.Group {
		switch key.Kind {
		case "Bundle", v1alpha1.SourcePropagationPolicy, "Placement":
			return true, true
		case "ClusterBundle", v1alpha1.SourceClusterPropagationPolicy, "ClusterPlacement":
			return false, true
		}
		return false, false
	}
	return x.sources.State.Templates.IsNamespaced(key.Group, key.Kind)
}

// whyNotExplainable returns why a kind cannot be explained.
func whyNotExplainable(key atoll.ItemKey) string {
	gk := schema.GroupKind{Group: key.Group, Kind: key.Kind}
	switch {
	case key.Group == v1alpha1.GroupVersion.Group && strings.HasSuffix(key.Kind, "OverridePolicy"):
		return "override policies change what is placed: explain an object that it selects, and the answer shows which rule set what"
	case key.Group == v1alpha1.GroupVersion.Group && key.Kind == "Cluster":
		return fmt.Sprintf("a Cluster is not placed: `atoll get clusters` shows how it is, `atoll get rows -A --cluster %s` what it runs", key.Name)
	case atoll.IsHubOwnedKind(gk):
		return fmt.Sprintf("a %s is not placed: explain an object, a policy, a Placement or a Bundle", key.Kind)
	case state.IsNeverTemplate(gk):
		return fmt.Sprintf("objects of kind %s are made by machinery and are never placed", gk)
	}
	return fmt.Sprintf("the hub serves no kind %s that could be placed", gk)
}

// explainObject explains an object from the present tables and what the deciding functions make of it.
func (x *userQuery) explainObject(ctx context.Context, key atoll.ItemKey) (explain.Explanation, error) {
	in := explain.ExplanationInput{Object: key, Now: x.now, MayRead: func(k atoll.ItemKey) bool { return x.mayGet(ctx, k) }}
	in.LatestChange = x.latestChange(key)
	if why, holding := x.sources.State.Hub.HoldReason(); holding {
		in.Holding = why
	}
	var bundles []state.Bundle
	var err error
	if key.Group == v1alpha1.GroupVersion.Group {
		bundles = x.bundlesOfAtollObject(ctx, key, &in)
	} else if bundles, err = x.bundlesOfTemplate(ctx, key, &in); err != nil {
		return explain.Explanation{}, err
	}
	if !in.Exists && len(bundles) == 0 {
		return explain.Explanation{}, refusal.WithReason(atoll.ReasonNotFound, apierrors.NewNotFound(schema.GroupResource{Group: key.Group, Resource: strings.ToLower(key.Kind)}, key.Name))
	}
	if len(bundles) > maxExplainedBundles {
		slices.SortStableFunc(bundles, func(a, b state.Bundle) int {
			return cmp.Compare(min(len(b.Status.WaitsFor), 1), min(len(a.Status.WaitsFor), 1))
		})
		in.MoreBundles, bundles = len(bundles)-maxExplainedBundles, bundles[:maxExplainedBundles]
	}
	in.Interpreters = x.sources.State.Policies.InterpreterLibrary()
	if len(bundles) > 0 || in.PolicyMatch != nil && in.PolicyMatch.Winner != nil {
		in.Failures = x.scriptFailures(key, bundles)
	}
	for _, b := range bundles {
		one, err := x.explainBundle(ctx, b)
		if err != nil {
			return explain.Explanation{}, err
		}
		in.Bundles = append(in.Bundles, one)
	}
	return explain.Explain(in), nil
}

// bundlesOfAtollObject returns the requested Bundle, or those of a policy; of a Placement none.
func (x *userQuery) bundlesOfAtollObject(ctx context.Context, key atoll.ItemKey, in *explain.ExplanationInput) (out []state.Bundle) {
	st := x.sources.State
	switch key.Kind {
	case "Bundle", "ClusterBundle":
		b, ok := st.Bundles.GetByName(key.Namespace, key.Name)
		if in.Exists = ok; ok {
			x.noteNamespaceAnnotation(b, in)
			out = append(out, b)
		}
		return out
	case "Placement", "ClusterPlacement":
		pl, d, published, ok := x.sources.Decisions.ExplainPlacement(types.NamespacedName{Namespace: key.Namespace, Name: key.Name})
		if in.Exists = ok; ok {
			in.Chosen = &explain.Chosen{UID: string(pl.Meta.UID), Spec: pl.Spec, Decision: d, Published: published}
		}
		return nil
	case v1alpha1.SourcePropagationPolicy:
		if p, ok := st.Policies.GetPropagationPolicy(key.Namespace, key.Name); ok {
			in.Exists, in.Policy = true, x.describePolicy(key, p.Generation, &p.Spec, p.Status)
		}
	default:
		if p, ok := st.Policies.GetClusterPropagationPolicy(key.Name); ok {
			in.Exists, in.Policy = true, x.describePolicy(key, p.Generation, &p.Spec, p.Status)
		}
	}
	for _, b := range st.Bundles.List() {
		if isOfPolicy(b, key) && x.mayKnowBundle(ctx, key, b.Ref.Namespace, b.Ref.Name) {
			out = append(out, b)
		}
	}
	return out
}

// describePolicy describes the requested policy: its selection, and the problems in its status. A
// missing Placement is looked up, because the status comes later.
func (x *userQuery) describePolicy(key atoll.ItemKey, generation int64, spec *v1alpha1.PropagationSpec, status v1alpha1.PropagationStatus) *explain.Policy {
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
	applied := meta.FindStatusCondition(status.Conditions, v1alpha1.PolicyApplied)
	out.Problem = x.sources.Binder.MissingPlacementReason(policymatch.BundleID{Namespace: key.Namespace}, v1alpha1.BundleSource{Kind: key.Kind, Name: key.Name})
	if out.Problem != "" {
		out.ProblemReason = atoll.ReasonPlacementMissing
	} else if applied != nil && applied.Status == metav1.ConditionFalse && applied.ObservedGeneration == generation &&
		applied.Reason == string(atoll.ReasonCannotSend) {
		out.Problem, out.ProblemReason = applied.Message, atoll.ReasonCannotSend
	}
	return out
}

// noteNamespaceAnnotation records the annotation of a namespace, where the Bundle comes from one.
func (x *userQuery) noteNamespaceAnnotation(b state.Bundle, in *explain.ExplanationInput) {
	if b.Spec.Source.Kind == v1alpha1.SourceNamespaceAnnotation {
		x.noteNamespaceScope(b.Ref.Namespace, in)
	}
}

// noteNamespaceScope notes the annotation of a namespace and what it leaves out.
func (x *userQuery) noteNamespaceScope(namespace string, in *explain.ExplanationInput) {
	if ns, ok := x.sources.State.Namespaces.Get(namespace); ok {
		in.Annotation = ns.Annotations[atoll.AnnotationClusters]
	}
	for _, s := range x.sources.Binder.SkippedTemplates(namespace) {
		in.Skipped = append(in.Skipped, explain.Skipped{Key: s.Key, Why: s.Reason, Reason: atoll.ReasonMachineMade})
	}
}

// isOfPolicy reports whether the policy places the Bundle.
func isOfPolicy(b state.Bundle, policy atoll.ItemKey) bool {
	return b.Spec.Source.Kind == policy.Kind && b.Spec.Source.Name == policy.Name &&
		(policy.Namespace == "" || b.Ref.Namespace == policy.Namespace)
}

// bundlesOfTemplate records the policy that places the template, and returns the Bundles that hold
// it, for a Namespace also the one of its annotation.
func (x *userQuery) bundlesOfTemplate(ctx context.Context, key atoll.ItemKey, in *explain.ExplanationInput) ([]state.Bundle, error) {
	st := x.sources.State
	if !st.Templates.IsSynced(key.Group, key.Kind) {
		return nil, respond.StillStarting(fmt.Sprintf("objects of kind %s are being read", key.Kind))
	}
	ids := x.explainTemplateMatch(ctx, key, in)
	var out []state.Bundle
	for _, b := range st.Bundles.List() {
		id := policymatch.BundleID{Namespace: b.Ref.Namespace, Name: b.Ref.Name}
		mine := slices.Contains(ids, id) || b.Ref.Namespace == key.Namespace && x.hasTombstone(ctx, b, key, in)
		if key.IsNamespace() && b.Ref.Namespace == key.Name && b.Spec.Source.Kind == v1alpha1.SourceNamespaceAnnotation {
			mine = true
		}
		if mine && x.mayKnowBundle(ctx, key, b.Ref.Namespace, b.Ref.Name) {
			out = append(out, b)
		}
	}
	switch {
	case key.Namespace != "":
		x.noteNamespaceScope(key.Namespace, in)
		in.NamespaceBarred = len(st.Sets.AllowedSets(key.Namespace)) == 0
	case key.IsNamespace():
		x.noteNamespaceScope(key.Name, in)
	}
	return out, nil
}

// explainTemplateMatch records the template and the policy that places it. It returns the Bundles that hold
// it or are to.
func (x *userQuery) explainTemplateMatch(ctx context.Context, key atoll.ItemKey, in *explain.ExplanationInput) []policymatch.BundleID {
	ids := x.sources.Binder.BundlesInvolving(key)
	t, ok := x.sources.State.Templates.Get(key)
	if !ok {
		return ids
	}
	in.Exists, in.Version = true, t.GroupVersionKind().Version
	if at := t.GetDeletionTimestamp(); at != nil {
		in.DeletedAt = &at.Time
	} else if why, ok := x.sources.Binder.ExplainTemplate(key); ok {
		in.PolicyMatch = x.explainMatch(ctx, key, why)
		if why.Winner != nil && !slices.Contains(ids, why.Bundle) {
			ids = append(ids, why.Bundle)
		}
	}
	return ids
}

// hasTombstone reports whether the Bundle still has a tombstone for a template that is
// deleted. A content that cannot be read is as good as none here.
func (x *userQuery) hasTombstone(ctx context.Context, b state.Bundle, key atoll.ItemKey, in *explain.ExplanationInput) bool {
	if in.Exists && in.DeletedAt == nil {
		return false
	}
	latest, ok := x.sources.State.Revisions.LatestOfBundle(b.Ref.UID)
	if !ok {
		return false
	}
	content, err := x.sources.State.Revisions.GetContent(ctx, latest.Name)
	return err == nil && slices.ContainsFunc(content.Tombstones, func(t atoll.Tombstone) bool { return t.Key == key })
}

func (x *userQuery) explainMatch(ctx context.Context, key atoll.ItemKey, why binder.Explanation) *explain.PolicyMatch {
	c := &explain.PolicyMatch{Why: why.Reason, ReasonCode: why.ReasonCode, Skipped: why.SkippedReason, HubOnly: why.HubOnly}
	if why.Parent != nil {
		c.Parent = why.Parent.Key.Kind + "/" + why.Parent.Key.Name
	}
	if c.Skipped != "" {
		c.SkippedReason = atoll.ReasonMachineMade
	}
	if why.Winner != nil {
		winner := explainCandidate(*why.Winner)
		if why.Root != nil {
			winner.Selects = why.Root.Key.Kind + "/" + why.Root.Key.Name
		}
		c.Winner = &winner
		if c.WaitsFor = x.sources.Binder.MissingHubNamespaceReason(why.Bundle); c.WaitsFor != "" {
			c.WaitsReason = atoll.ReasonNamespaceUnknown
		} else if c.WaitsFor = x.sources.Binder.MissingPlacementReason(why.Bundle, why.Winner.Source); c.WaitsFor != "" {
			c.WaitsReason = atoll.ReasonPlacementMissing
		} else if c.WaitsFor = x.sources.Binder.MissingOverridesReason(why.Bundle, why.Winner.Source); c.WaitsFor != "" {
			c.WaitsReason = atoll.ReasonOverridesMissing
		}
	}
	for i, o := range why.Others {
		other := explainCandidate(o)
		if i < len(why.Losses) {
			other.LostBecause, other.LostReason = why.Losses[i].Reason, why.Losses[i].Code
		}
		c.Others = append(c.Others, other)
	}
	for _, id := range why.NeededBy {
		if x.mayKnowBundle(ctx, key, id.Namespace, id.Name) {
			c.NeededBy = append(c.NeededBy, strings.TrimPrefix(id.String(), "/"))
		}
	}
	return c
}

func explainCandidate(c policymatch.Candidate) explain.Candidate {
	out := explain.Candidate{Kind: c.Source.Kind, Name: c.Source.Name, Matched: c.MatchedBy}
	if c.Spec != nil {
		out.Priority = c.Spec.Priority
	}
	return out
}

// explainBundle is all that is known of one: its rows, the next step that would be taken
// now, and what its overrides set.
func (x *userQuery) explainBundle(ctx context.Context, b state.Bundle) (explain.Bundle, error) {
	st := x.sources.State
	p, err := x.sources.Placer.PreviewBundle(ctx, b)
	if err != nil {
		return explain.Bundle{}, fmt.Errorf("what is next for bundle %s/%s: %w", b.Ref.Namespace, b.Ref.Name, err)
	}
	out := explain.Bundle{
		Ref: b.Ref, Spec: b.Spec, Status: b.Status, Created: b.Meta.CreationTimestamp.Time, Decision: x.hideOtherTenants(ctx, b, p), Output: p.Output,
		Rebalance: atoll.RebalanceRequestedAt(b.Meta.Annotations),
		Numbers:   map[string]int64{}, Rows: map[string]rollout.Row{}, DisconnectedSince: map[string]time.Time{}, AgentProblems: map[string]string{},
	}
	for _, r := range st.Revisions.OfBundle(b.Ref.UID) {
		out.Numbers[r.Name], out.Latest = r.Spec.Number, r.Name
	}
	contents, views := map[string]*atoll.Content{}, map[string]atoll.ClusterView{}
	read := func(name string) {
		if _, known := contents[name]; !known && name != "" {
			// One that cannot be read any more explains nothing.
			contents[name], _ = st.Revisions.GetContent(ctx, name)
		}
	}
	read(out.Latest)
	out.Content = contents[out.Latest]
	for _, row := range p.Rows {
		one := rollout.Row{Spec: row.Spec, Status: row.Status, Online: st.Clusters.IsOnline(row.Spec.UID)}
		if c, ok := st.Clusters.Get(row.Cluster); ok {
			one.CheckIn, views[row.Cluster] = c.Spec.CheckInInterval(), st.Views.ViewForOverrides(c)
			if ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterReady); ready != nil && ready.Status != metav1.ConditionTrue {
				out.DisconnectedSince[row.Cluster] = ready.LastTransitionTime.Time
			}
			x.noteAgentProblem(ctx, c, out.AgentProblems)
		}
		out.Rows[row.Cluster] = one
		read(row.Spec.Revision)
	}
	out.Provenance = explain.ProvenanceByCluster(out.Rows, contents, views)
	return out, nil
}

// noteAgentProblem reports the blocker of a cluster's agent in the hub: in full to users that may
// read the Cluster, because it names the member's address.
func (x *userQuery) noteAgentProblem(ctx context.Context, c *v1alpha1.Cluster, kept map[string]string) {
	cond := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterPushed)
	if cond == nil || cond.Status == metav1.ConditionTrue || !c.Spec.IsPushed() {
		return
	}
	kept[c.Name] = cond.Reason
	if x.mayGet(ctx, atoll.ItemKey{Group: v1alpha1.GroupVersion.Group, Kind: "Cluster", Name: c.Name}) {
		kept[c.Name] += ": " + cond.Message
	}
}

// hideOtherTenants returns the decision without clusters of other tenants. A user that may not
// read Clusters sees those that hold the Bundle, and those in the sets of its namespace.
func (x *userQuery) hideOtherTenants(ctx context.Context, b state.Bundle, p placer.BundlePreview) schedule.Decision {
	d := p.Decision
	if b.Ref.Namespace == "" || x.mayGet(ctx, atoll.ItemKey{Group: v1alpha1.GroupVersion.Group, Kind: "Cluster"}) {
		return d
	}
	bound, holds, all := x.sources.State.Sets.AllowedSets(b.Ref.Namespace), map[string]bool{}, len(d.Verdicts)
	for _, r := range p.Rows {
		holds[r.Cluster] = true
	}
	d.Verdicts = slices.DeleteFunc(slices.Clone(d.Verdicts), func(v schedule.Verdict) bool {
		return !holds[v.Cluster] && v.Outcome != schedule.OutcomePlaced &&
			!slices.ContainsFunc(x.sources.State.Clusters.SetsOfCluster(v.Cluster), func(s string) bool { return slices.Contains(bound, s) })
	})
	if len(d.Verdicts) < all {
		d = d.RedactCounts()
	}
	return d
}

// mayKnowBundle reports whether the user may see a Bundle: it lives with the object that
// the user may read, or the user may read it as well.
func (x *userQuery) mayKnowBundle(ctx context.Context, about atoll.ItemKey, namespace, name string) bool {
	if namespace == about.Namespace {
		return true
	}
	kind := "Bundle"
	if namespace == "" {
		kind = "ClusterBundle"
	}
	return x.mayGet(ctx, atoll.ItemKey{Group: v1alpha1.GroupVersion.Group, Kind: kind, Namespace: namespace, Name: name})
}

// mayGet reports whether the user may read an object; by the kind first, because the right on a
// kind includes each object.
func (x *userQuery) mayGet(ctx context.Context, key atoll.ItemKey) bool {
	all := key
	all.Name = ""
	for _, k := range []atoll.ItemKey{all, key} {
		may, known := x.readable[k]
		if !known {
			may = x.plugin.MayGet(ctx, x.user, k)
			x.readable[k] = may
		}
		if may {
			return true
		}
	}
	return false
}
