package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bind"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/place"
	"atoll.dev/atoll/internal/place/decisions"
	"atoll.dev/atoll/internal/plan"
	"atoll.dev/atoll/internal/state"
)

// planPath answers POST with what would change if objects were written, as JSON, or with
// output=text as text for people; all=true leaves nothing of a fleet to a count. The body
// is a planRequest. Nothing is written, and nobody's permission to write is looked at: a
// dry run of each write tells that, and gives the objects as they would be stored.
const planPath = "/atoll/v1alpha1/plan"

// planRequest is the objects as they would be, with all that the API server would fill
// in, and those that would be deleted, of which only their names count.
type planRequest struct {
	Objects []*unstructured.Unstructured `json:"objects,omitempty"`
	Deleted []*unstructured.Unstructured `json:"deleted,omitempty"`
	// Refused and Unchecked are what the dry runs said: they come back with the plan.
	Refused   []plan.Refusal `json:"refused,omitempty"`
	Unchecked []plan.Refusal `json:"unchecked,omitempty"`
	// Unchanged objects would be as they are; only their names count. Of those that are
	// templates the plan says when nobody places them.
	Unchanged []*unstructured.Unstructured `json:"unchanged,omitempty"`
}

const (
	// largestPlan is how many bytes of objects are read.
	largestPlan = 16 << 20
	// mostPlanned Bundles are looked at where a cluster, set or score changes, which may
	// matter to any, and mostPlacements Placements.
	mostPlanned    = 2000
	mostPlacements = 500
	// planPatience is how long a plan may take.
	planPatience = 25 * time.Second
)

// servePlan answers, or refuses with a Status as the API does.
func (l *lateParts) servePlan(w http.ResponseWriter, r *http.Request) {
	p, q, err := l.planned(w, r)
	reply(w, p, q, err)
}

func (l *lateParts) planned(w http.ResponseWriter, r *http.Request) (plan.Plan, url.Values, error) {
	q := r.URL.Query()
	for name := range q {
		if !slices.Contains([]string{"timeout", "output", "all"}, name) {
			return plan.Plan{}, nil, apierrors.NewBadRequest(fmt.Sprintf("plan has no parameter %q; it has output and all", name))
		}
	}
	if r.Method != http.MethodPost {
		return plan.Plan{}, nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "plan"}, r.Method)
	}
	var in planRequest
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, largestPlan))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return plan.Plan{}, nil, apierrors.NewBadRequest(fmt.Sprintf("the body is not what a plan is made of: %v", err))
	}
	u, known := request.UserFrom(r.Context())
	if !known {
		return plan.Plan{}, nil, apierrors.NewUnauthorized("nobody asks")
	}
	p, ready := l.parts.Get()
	if !ready || !p.bind.Loaded() {
		return plan.Plan{}, nil, starting("its tables are being read")
	}
	x := &explainer{parts: p, access: l.plugin, user: u, now: time.Now(), seen: map[atoll.ItemKey]bool{}}
	ctx, cancel := context.WithTimeout(r.Context(), planPatience)
	defer cancel()
	out, err := x.plan(ctx, in, false)
	if errors.Is(err, context.DeadlineExceeded) {
		err = apierrors.NewTimeoutError(fmt.Sprintf("the plan is not done after %s: plan fewer objects at once", planPatience), 0)
	}
	return out, q, err
}

// foretell what an object that is offered as a dry run would change, the sum first.
func (l *lateParts) foretell(ctx context.Context, u user.Info, o *unstructured.Unstructured, deleted bool) []string {
	p, ready := l.parts.Get()
	if !ready || !p.bind.Loaded() {
		return nil
	}
	x := &explainer{parts: p, access: l.plugin, user: u, now: time.Now(), seen: map[atoll.ItemKey]bool{}}
	in := planRequest{Objects: []*unstructured.Unstructured{o}}
	if deleted {
		in = planRequest{Deleted: in.Objects}
	}
	out, err := x.plan(ctx, in, true)
	if err != nil {
		return []string{fmt.Sprintf("what this would change cannot be told here: %v; `atoll plan -f FILE --state live` may", err)}
	}
	lines := strings.Split(strings.TrimSpace(out.Text(false)), "\n")
	return append(lines[len(lines)-1:], lines[:len(lines)-1]...)
}

// plan what the objects would come to. admitted: the API server has let the user write
// them.
func (x *explainer) plan(ctx context.Context, in planRequest, admitted bool) (plan.Plan, error) {
	s, err := x.suppose(ctx, in, admitted)
	if err != nil {
		return plan.Plan{}, apierrors.NewBadRequest(err.Error())
	}
	foreseen, err := x.parts.bind.Foresee(ctx, s.binding())
	if err == nil && s.refuseDivided(foreseen) {
		foreseen, err = x.parts.bind.Foresee(ctx, s.binding())
	}
	if err != nil {
		return plan.Plan{}, err
	}
	out := plan.Input{
		Visible: func(k atoll.ItemKey) bool { return x.mayGet(ctx, k) },
		Known: func(id claim.BundleID) bool {
			return x.mayKnow(ctx, atoll.ItemKey{Namespace: "\x00"}, id.Namespace, id.Name)
		},
		ViewsBefore: map[string]atoll.ClusterView{}, ViewsAfter: map[string]atoll.ClusterView{},
		Refused: append(in.Refused, s.refused...), Unchecked: in.Unchecked,
	}
	tables := s.tables()
	list, more, err := x.touchedBy(ctx, tables, foreseen)
	if err != nil {
		return plan.Plan{}, err
	}
	out.More = more
	after, err := x.parts.place.Foresee(ctx, &tables, list)
	if err != nil {
		return plan.Plan{}, err
	}
	for _, c := range x.parts.state.Clusters.List() {
		out.ViewsBefore[c.Name] = x.parts.state.Views.Stated(c)
	}
	for _, c := range s.clusters.List() {
		out.ViewsAfter[c.Name] = s.views.Stated(c)
	}
	if why, holding := x.parts.state.Hub.Holding(); holding {
		out.Holding = why
	}
	byID := map[claim.BundleID]bind.Foreseen{}
	for _, f := range foreseen {
		byID[claim.BundleID{Namespace: f.Bundle.Ref.Namespace, Name: f.Bundle.Ref.Name}] = f
		if f.Waits != "" {
			out.Bundles = append(out.Bundles, plan.Change{
				ID: claim.BundleID{Namespace: f.Bundle.Ref.Namespace, Name: f.Bundle.Ref.Name}, Source: f.Bundle.Spec.Source, New: f.New, Waits: f.Waits,
			})
		}
	}
	for _, f := range after {
		out.Bundles = append(out.Bundles, x.change(ctx, f, byID))
	}
	out.Placements = x.placements(ctx, s, tables)
	out.Unplaced = append(unplaced(s, foreseen, after), x.nowhere(in.Unchanged)...)
	return plan.Of(out), nil
}

// touchedBy lists the Bundles to look at: those that bind foresees, and those to which what
// else changes may matter, up to a bound.
func (x *explainer) touchedBy(ctx context.Context, t place.Tables, foreseen []bind.Foreseen) (list []place.Supposed, more int, err error) {
	known := map[string]bool{}
	for _, f := range foreseen {
		known[f.Bundle.Ref.UID] = true
		if f.Waits == "" {
			list = append(list, place.Supposed{Bundle: f.Bundle, Revision: f.Revision, Content: f.Content})
		}
	}
	if t == (place.Tables{}) {
		return list, 0, nil
	}
	touched, err := x.parts.place.Touched(ctx, t)
	if err != nil {
		return nil, 0, err
	}
	for _, b := range touched {
		latest, ok := x.parts.state.Revisions.Latest(b.Ref.UID)
		switch {
		case known[b.Ref.UID] || !ok:
		case len(list) >= mostPlanned:
			more++
		default:
			content, err := x.parts.state.Revisions.Content(ctx, latest.Name)
			if err != nil {
				return nil, 0, err
			}
			list = append(list, place.Supposed{Bundle: b, Revision: latest.Name, Content: content})
		}
	}
	return list, more, nil
}

// placements that would publish other clusters, of those that the user may read: the
// written ones, and all where what they choose from changes.
func (x *explainer) placements(ctx context.Context, s *supposed, t place.Tables) (out []plan.Placement) {
	keys := s.placements()
	written := slices.Clone(keys)
	if t != (place.Tables{}) {
		for _, p := range x.parts.state.Placements.List() {
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
	d := decisions.Tables{
		Placements: x.parts.state.Placements.With(s.ours...), Clusters: t.Clusters, Views: t.Views, Sets: t.Sets, Feed: x.parts.place.Feeding(t),
	}
	for _, f := range x.parts.decisions.Foresee(d, keys[:min(len(keys), mostPlacements)]) {
		// That one which nobody writes has no place is no news.
		out = append(out, plan.Placement{
			Namespace: f.Key.Namespace, Name: f.Key.Name, NoFit: f.NoFit && slices.Contains(written, f.Key), Unmet: f.Unmet, Chosen: len(f.After),
			Added: without(f.After, f.Before), Removed: without(f.Before, f.After),
		})
	}
	return out
}

func without(list, of []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(name string) bool {
		_, found := slices.BinarySearch(of, name)
		return found
	})
}

func (x *explainer) change(ctx context.Context, f place.Foreseen, byID map[claim.BundleID]bind.Foreseen) plan.Change {
	ref := f.Bundle.Ref
	c := plan.Change{
		ID: claim.BundleID{Namespace: ref.Namespace, Name: ref.Name}, Source: f.Bundle.Spec.Source,
		Revision: f.Revision, Content: f.Content, Contents: map[string]*atoll.Content{},
		Before: f.Before, After: f.After, Decision: f.Decision, Held: f.Held, Waiting: f.Waits, Short: f.Short,
		Placement: f.Bundle.Spec.Placement,
	}
	if latest, ok := x.parts.state.Revisions.Latest(ref.UID); !ok || latest.Name != f.Revision {
		c.Anew = true
	}
	if b, ok := x.parts.state.Bundles.ByName(ref.Namespace, ref.Name); ok {
		c.Edited = !apiequality.Semantic.DeepEqual(b.Spec.Placement, c.Placement)
	}
	if b, ok := byID[c.ID]; ok {
		c.New, c.Problems = b.New, b.Problems
	}
	for _, rows := range []map[string]atoll.RowSpec{f.Before, f.After} {
		for _, row := range rows {
			if _, known := c.Contents[row.Revision]; !known && row.Revision != f.Revision {
				// One that cannot be read any more shows no fields.
				c.Contents[row.Revision], _ = x.parts.state.Revisions.Content(ctx, row.Revision)
			}
		}
	}
	return c
}

// unplaced templates among the written ones. Where a Bundle waits, nobody knows yet what it
// will hold.
func unplaced(s *supposed, foreseen []bind.Foreseen, after []place.Foreseen) (out []plan.Unplaced) {
	held, waiting := map[atoll.ItemKey]bool{}, map[string]bool{}
	for _, f := range foreseen {
		waiting[f.Bundle.Ref.Namespace] = waiting[f.Bundle.Ref.Namespace] || f.Waits != ""
	}
	for _, f := range after {
		for i := range f.Content.Items {
			held[f.Content.Items[i].Key] = true
		}
	}
	for key, t := range s.templates {
		if t.GetDeletionTimestamp() == nil && !held[key] && !waiting[key.Namespace] && key.Kind != "Namespace" && !state.NeverTemplate(claim.GroupKind(key)) {
			out = append(out, plan.Unplaced{Key: key, Why: "no policy and no annotation that wins selects it, or what does names no cluster"})
		}
	}
	return out
}

// nowhere lists those of the templates that are in no Bundle.
func (x *explainer) nowhere(unchanged []*unstructured.Unstructured) (out []plan.Unplaced) {
	for _, o := range unchanged {
		if o == nil {
			continue
		}
		key := claim.KeyOf(o)
		if isNamespace(key) || state.NeverTemplate(claim.GroupKind(key)) {
			continue
		}
		if why, ok := x.parts.bind.Explain(key); ok && why.Winner == nil && len(x.parts.bind.Involved(key)) == 0 {
			out = append(out, plan.Unplaced{Key: key, Why: why.Why})
		}
	}
	return out
}
