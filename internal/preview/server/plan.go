package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver/respond"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/binder"
	"atoll.dev/atoll/internal/placer"
	"atoll.dev/atoll/internal/placer/decisions"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/preview"
	"atoll.dev/atoll/internal/refusal"
	"atoll.dev/atoll/internal/state"
)

// planRequest is the objects as they would be, with all that the API server would fill
// in, and those that would be deleted, of which only their names count.
type planRequest struct {
	Objects []*unstructured.Unstructured `json:"objects,omitempty"`
	Deleted []*unstructured.Unstructured `json:"deleted,omitempty"`
	// Refused and Unchecked are the results of the dry runs: they come back with the plan.
	Refused   []preview.Refusal `json:"refused,omitempty"`
	Unchecked []preview.Refusal `json:"unchecked,omitempty"`
	// Unchanged objects would be as they are; only their names count. The plan reports those that
	// are templates without a policy.
	Unchanged []*unstructured.Unstructured `json:"unchanged,omitempty"`
}

const (
	// maxPlanBytes is how many bytes of objects are read. A plan takes about planCost times as much.
	maxPlanBytes = 4 << 20
	planCost     = 40
	// maxPlannedObjects are written, deleted or unchanged, and maxPlannedItems are the items of the
	// Bundles that they change, times the clusters of the fleet.
	maxPlannedObjects = 5000
	maxPlannedItems   = 5_000_000
	// maxPlannedBundles Bundles are looked at where a cluster, set or score changes, which may
	// matter to any, and maxPlannedPlacements Placements.
	maxPlannedBundles    = 2000
	maxPlannedPlacements = 500
	// planTimeout is how long a plan may take.
	planTimeout = 25 * time.Second
)

// ServePlan answers, or refuses with a Status as the API does.
func (s *Server) ServePlan(w http.ResponseWriter, r *http.Request) {
	p, err := s.answerPlan(w, r)
	respond.WriteAnswer(w, p, r.URL.Query(), err)
}

func (s *Server) answerPlan(w http.ResponseWriter, r *http.Request) (preview.Plan, error) {
	if err := respond.CheckParameters(r.URL.Query(), "plan", "output", "all"); err != nil {
		return preview.Plan{}, err
	}
	release, err := s.reservePlanMemory(r)
	if err != nil {
		return preview.Plan{}, err
	}
	defer release()
	in, err := decodePlan(w, r)
	if err != nil {
		return preview.Plan{}, err
	}
	x, err := s.newQuery(r)
	if err != nil {
		return preview.Plan{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), planTimeout)
	defer cancel()
	out, err := x.planObjects(ctx, in, false)
	if errors.Is(err, context.DeadlineExceeded) {
		err = refusal.WithReason(atoll.ReasonAnswerTooLarge, apierrors.NewTimeoutError(fmt.Sprintf("the plan is not done after %s: plan fewer objects at once", planTimeout), 0))
	}
	return out, err
}

// reservePlanMemory reserves the memory that a plan takes, by the length of its body.
func (s *Server) reservePlanMemory(r *http.Request) (release func(), err error) {
	length := r.ContentLength
	if length > maxPlanBytes {
		return nil, planTooLarge(fmt.Sprintf("its body has %d bytes, at most %d are planned at once", length, maxPlanBytes))
	}
	if length < 0 { // it is not known
		length = maxPlanBytes
	}
	return s.reserveMemory(r, "the plan", planCost*length)
}

// reserveMemory counts the bytes that an answer takes for the user of the request.
func (s *Server) reserveMemory(r *http.Request, what string, n int64) (release func(), err error) {
	u, known := request.UserFrom(r.Context())
	if !known || s.ReserveMemory == nil {
		return func() {}, nil
	}
	return s.ReserveMemory(u.GetName(), what, n)
}

// decodePlan reads the body of a plan.
func decodePlan(w http.ResponseWriter, r *http.Request) (in planRequest, err error) {
	var tooLarge *http.MaxBytesError
	switch err := decodeBody(w, r, "plan", maxPlanBytes, &in); {
	case apierrors.IsMethodNotSupported(err):
		return in, err
	case errors.As(err, &tooLarge):
		return in, planTooLarge(fmt.Sprintf("at most %d bytes are planned at once", maxPlanBytes))
	case err != nil:
		return in, badRequest("the body is not what a plan is made of: %v", err)
	}
	if n := len(in.Objects) + len(in.Deleted) + len(in.Unchanged); n > maxPlannedObjects {
		return in, planTooLarge(fmt.Sprintf("it has %d objects, at most %d are planned at once", n, maxPlannedObjects))
	}
	return in, nil
}

// planTooLarge is the refusal of a plan before it is computed.
func planTooLarge(why string) error {
	return refusal.WithReason(atoll.ReasonAnswerTooLarge, apierrors.NewRequestEntityTooLargeError("the plan is too large: "+why+"; plan fewer objects at once"))
}

// checkPlanSize refuses a plan whose Bundles have too many items for a fleet of so many clusters.
func checkPlanSize(foreseen []binder.PreviewedBundle, clusters int) error {
	items := 0
	for _, f := range foreseen {
		if f.Content != nil {
			items += len(f.Content.Items)
		}
	}
	if items*clusters > maxPlannedItems {
		return planTooLarge(fmt.Sprintf("its bundles have %d items for %d clusters, at most %d together are planned at once", items, clusters, maxPlannedItems))
	}
	return nil
}

// PreviewWrite gives lines for people about what a write, or a deletion, of the object
// would change, the sum first. It gives none while the hub starts.
func (s *Server) PreviewWrite(ctx context.Context, u user.Info, o *unstructured.Unstructured, deleted bool) []string {
	x, ready := s.newUserQuery(u)
	if !ready {
		return nil
	}
	in := planRequest{Objects: []*unstructured.Unstructured{o}}
	if deleted {
		in = planRequest{Deleted: in.Objects}
	}
	out, err := x.planObjects(ctx, in, true)
	if err != nil {
		return []string{fmt.Sprintf("no preview of this change can be made here: %v; `atoll plan -f FILE` may make one", err)}
	}
	lines := strings.Split(strings.TrimSpace(out.FormatText(false)), "\n")
	return append(lines[len(lines)-1:], lines[:len(lines)-1]...)
}

// planObjects returns what the objects would change. admitted: the API server has let the user write
// them.
func (x *userQuery) planObjects(ctx context.Context, in planRequest, admitted bool) (preview.Plan, error) {
	s, err := x.supposeWrites(ctx, in, admitted)
	if err != nil {
		return preview.Plan{}, badRequest("%v", err)
	}
	foreseen, err := x.sources.Binder.PreviewBundles(ctx, s.supposedBinderTables())
	if err == nil && s.refuseDividedReplicas(foreseen) {
		foreseen, err = x.sources.Binder.PreviewBundles(ctx, s.supposedBinderTables())
	}
	if err != nil {
		return preview.Plan{}, err
	}
	if err := checkPlanSize(foreseen, len(x.sources.State.Clusters.List())); err != nil {
		return preview.Plan{}, err
	}
	out := preview.Input{
		MayReadItem: func(k atoll.ItemKey) bool { return x.mayGet(ctx, k) },
		MayKnowBundle: func(id policymatch.BundleID) bool {
			return x.mayKnowBundle(ctx, atoll.ItemKey{Namespace: "\x00"}, id.Namespace, id.Name)
		},
		ViewsBefore: map[string]atoll.ClusterView{}, ViewsAfter: map[string]atoll.ClusterView{},
		Refused: append(in.Refused, s.refused...), Unchecked: in.Unchecked,
	}
	tables := s.changedTables()
	list, more, err := x.affectedBundles(ctx, tables, foreseen)
	if err != nil {
		return preview.Plan{}, err
	}
	out.MoreBundles = more
	after, err := x.sources.Placer.PreviewBundles(ctx, &tables, list)
	if err != nil {
		return preview.Plan{}, err
	}
	for _, c := range x.sources.State.Clusters.List() {
		out.ViewsBefore[c.Name] = x.sources.State.Views.ViewForOverrides(c)
	}
	for _, c := range s.clusters.List() {
		out.ViewsAfter[c.Name] = s.views.ViewForOverrides(c)
	}
	if why, holding := x.sources.State.Hub.HoldReason(); holding {
		out.Holding = why
	}
	out.DroppedChanges = x.countDroppedChanges(s.ownObjects)
	byID, waiting := foreseenByID(foreseen)
	placing := sync.OnceValue(func() map[v1alpha1.PolicyRef]bool { return x.listPlacingPolicies(byID) })
	out.Bundles = waiting
	for _, f := range after {
		out.Bundles = append(out.Bundles, x.bundleChange(ctx, f, byID, placing))
	}
	out.Placements = x.changedPlacements(ctx, s, tables)
	out.Unplaced = append(unplacedTemplates(s, foreseen, after), x.unplacedUnchanged(in.Unchanged)...)
	return preview.BuildPlan(out), nil
}

// foreseenByID returns the foreseen Bundles by their names, and those of them that wait.
func foreseenByID(foreseen []binder.PreviewedBundle) (byID map[policymatch.BundleID]binder.PreviewedBundle, waiting []preview.BundleChange) {
	byID = map[policymatch.BundleID]binder.PreviewedBundle{}
	for _, f := range foreseen {
		id := policymatch.BundleID{Namespace: f.Bundle.Ref.Namespace, Name: f.Bundle.Ref.Name}
		byID[id] = f
		if f.WaitReason != "" {
			waiting = append(waiting, preview.BundleChange{ID: id, Source: f.Bundle.Spec.Source, New: f.New, Waits: f.WaitReason, WaitsReason: f.WaitCode})
		}
	}
	return byID, waiting
}

// affectedBundles lists the Bundles to look at: those that bind foresees, and those to which what
// else changes may matter, up to a bound.
func (x *userQuery) affectedBundles(ctx context.Context, t placer.SupposedTables, foreseen []binder.PreviewedBundle) (list []placer.SupposedBundle, more int, err error) {
	known := map[string]bool{}
	for _, f := range foreseen {
		known[f.Bundle.Ref.UID] = true
		if f.WaitReason == "" {
			list = append(list, placer.SupposedBundle{Bundle: f.Bundle, Revision: f.Revision, Content: f.Content})
		}
	}
	if t == (placer.SupposedTables{}) {
		return list, 0, nil
	}
	touched, err := x.sources.Placer.BundlesTouchedBy(ctx, t)
	if err != nil {
		return nil, 0, err
	}
	for _, b := range touched {
		latest, ok := x.sources.State.Revisions.LatestOfBundle(b.Ref.UID)
		switch {
		case known[b.Ref.UID] || !ok:
		case len(list) >= maxPlannedBundles:
			more++
		default:
			content, err := x.sources.State.Revisions.GetContent(ctx, latest.Name)
			if err != nil {
				return nil, 0, err
			}
			list = append(list, placer.SupposedBundle{Bundle: b, Revision: latest.Name, Content: content})
		}
	}
	return list, more, nil
}

// changedPlacements returns the Placements that would publish other clusters, of those that the user may read: the
// written ones, and all where what they choose from changes.
func (x *userQuery) changedPlacements(ctx context.Context, s *hypotheticalState, t placer.SupposedTables) (out []preview.PlacementPlan) {
	keys := s.writtenPlacements()
	written := slices.Clone(keys)
	if t != (placer.SupposedTables{}) {
		for _, p := range x.sources.State.Placements.List() {
			if !slices.Contains(keys, p.Key()) {
				keys = append(keys, p.Key())
			}
		}
	}
	keys = slices.DeleteFunc(keys, func(k types.NamespacedName) bool {
		kind := "Placement"
		if k.Namespace == "" {
			kind = "ClusterPlacement"
		}
		return !x.mayGet(ctx, atoll.ItemKey{Group: v1alpha1.GroupVersion.Group, Kind: kind, Namespace: k.Namespace, Name: k.Name})
	})
	if len(keys) == 0 {
		return nil
	}
	d := decisions.SupposedTables{
		Placements: x.sources.State.Placements.SupposeWritten(s.ownObjects...), Clusters: t.Clusters, Views: t.Views, Sets: t.Sets, SetInterest: x.sources.Placer.ScoreInputsWith(t),
	}
	for _, f := range x.sources.Decisions.PreviewPlacements(d, keys[:min(len(keys), maxPlannedPlacements)]) {
		// An unwritten one without a place is no news.
		out = append(out, preview.PlacementPlan{
			Namespace: f.Key.Namespace, Name: f.Key.Name, NoFit: f.NoFit && slices.Contains(written, f.Key), Unmet: f.UnmetSpread, Chosen: len(f.After),
			Added: selectNamesNotIn(f.After, f.Before), Removed: selectNamesNotIn(f.Before, f.After),
		})
	}
	return out
}

func selectNamesNotIn(list, of []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(name string) bool {
		_, found := slices.BinarySearch(of, name)
		return found
	})
}

func (x *userQuery) bundleChange(ctx context.Context, f placer.PreviewedBundle, byID map[policymatch.BundleID]binder.PreviewedBundle, placing func() map[v1alpha1.PolicyRef]bool) preview.BundleChange {
	ref := f.Bundle.Ref
	c := preview.BundleChange{
		ID: policymatch.BundleID{Namespace: ref.Namespace, Name: ref.Name}, Source: f.Bundle.Spec.Source,
		Revision: f.Revision, Content: f.Content, Contents: map[string]*atoll.Content{},
		Before: f.Before, After: f.After, Decision: f.Decision, Held: f.HeldPlan, Waiting: f.Waits, OldCopyWaits: f.OldCopyWaits, DisruptionWaits: f.DisruptionWaits, Short: f.Shortages,
		Placement: f.Bundle.Spec.Placement, Suspension: f.Bundle.Spec.Suspension, Rollout: f.Rollout, DisruptionBudget: f.Bundle.Spec.DisruptionBudget, BudgetEdited: f.Bundle.Spec.DisruptionBudget != nil,
	}
	if latest, ok := x.sources.State.Revisions.LatestOfBundle(ref.UID); !ok || latest.Name != f.Revision {
		c.NewRevision = true
	}
	if b, ok := x.sources.State.Bundles.GetByName(ref.Namespace, ref.Name); ok {
		c.PlacementEdited = !apiequality.Semantic.DeepEqual(b.Spec.Placement, c.Placement)
		c.SuspensionEdited = !apiequality.Semantic.DeepEqual(b.Spec.Suspension, c.Suspension)
		c.BudgetEdited = !apiequality.Semantic.DeepEqual(b.Spec.DisruptionBudget, c.DisruptionBudget)
		c.RolloutEdit = preview.NewRolloutEdit(&b.Spec, &f.Bundle.Spec)
		if !apiequality.Semantic.DeepEqual(b.Spec.DependsOn, f.Bundle.Spec.DependsOn) {
			c.UnplacedDependencies = listUnplacedDependencies(f.Bundle, placing())
		}
	} else {
		c.RolloutEdit = preview.NewRolloutEdit(nil, &f.Bundle.Spec)
	}
	if b, ok := byID[c.ID]; ok {
		c.New, c.Problems = b.New, b.Problems
	}
	for _, rows := range []map[string]atoll.RowSpec{f.Before, f.After} {
		for _, row := range rows {
			if _, known := c.Contents[row.Revision]; !known && row.Revision != f.Revision {
				// One that cannot be read any more shows no fields.
				c.Contents[row.Revision], _ = x.sources.State.Revisions.GetContent(ctx, row.Revision)
			}
		}
	}
	return c
}

// unplacedTemplates returns the unplaced templates among the written ones. The content of a Bundle
// that waits is not known yet.
func unplacedTemplates(s *hypotheticalState, foreseen []binder.PreviewedBundle, after []placer.PreviewedBundle) (out []preview.UnplacedTemplate) {
	held, waiting := map[atoll.ItemKey]bool{}, map[string]bool{}
	for _, f := range foreseen {
		waiting[f.Bundle.Ref.Namespace] = waiting[f.Bundle.Ref.Namespace] || f.WaitReason != ""
	}
	for _, f := range after {
		for i := range f.Content.Items {
			held[f.Content.Items[i].Key] = true
		}
	}
	for key, t := range s.templates {
		if t.GetDeletionTimestamp() == nil && !held[key] && !waiting[key.Namespace] && key.Kind != "Namespace" && !state.IsNeverTemplate(policymatch.GroupKindOf(key)) {
			out = append(out, preview.UnplacedTemplate{Key: key, Reason: atoll.ReasonNotSelected, Why: "no policy and no annotation that wins selects it, or what does names no cluster"})
		}
	}
	return out
}

// unplacedUnchanged lists those of the templates that are in no Bundle.
func (x *userQuery) unplacedUnchanged(unchanged []*unstructured.Unstructured) (out []preview.UnplacedTemplate) {
	for _, o := range unchanged {
		if o == nil {
			continue
		}
		key := policymatch.ItemKeyOf(o)
		if key.IsNamespace() || state.IsNeverTemplate(policymatch.GroupKindOf(key)) {
			continue
		}
		if why, ok := x.sources.Binder.ExplainTemplate(key); ok && why.Winner == nil && len(x.sources.Binder.BundlesInvolving(key)) == 0 {
			out = append(out, preview.UnplacedTemplate{Key: key, Reason: why.ReasonCode, Why: why.Reason})
		}
	}
	return out
}
