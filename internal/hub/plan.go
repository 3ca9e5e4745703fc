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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bind"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/place"
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
}

const (
	// largestPlan is how many bytes of objects are read.
	largestPlan = 16 << 20
	// mostPlanned Bundles are looked at where a cluster changes, which may matter to any.
	mostPlanned = 2000
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
	out, err := x.plan(ctx, in)
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
	out, err := x.plan(ctx, in)
	if err != nil {
		return []string{fmt.Sprintf("what this would change cannot be told here: %v; `atoll plan -f FILE --state live` may", err)}
	}
	lines := strings.Split(strings.TrimSpace(out.Text(false)), "\n")
	return append(lines[len(lines)-1:], lines[:len(lines)-1]...)
}

// plan what the objects would come to.
func (x *explainer) plan(ctx context.Context, in planRequest) (plan.Plan, error) {
	s, err := x.suppose(in)
	if err != nil {
		return plan.Plan{}, apierrors.NewBadRequest(err.Error())
	}
	foreseen, err := x.parts.bind.Foresee(ctx, s.binding())
	if err != nil {
		return plan.Plan{}, err
	}
	out := plan.Input{
		Visible: func(k atoll.ItemKey) bool { return x.mayGet(ctx, k) },
		Known: func(id claim.BundleID) bool {
			return x.mayKnow(ctx, atoll.ItemKey{Namespace: "\x00"}, id.Namespace, id.Name)
		},
		ViewsBefore: map[string]atoll.ClusterView{}, ViewsAfter: map[string]atoll.ClusterView{},
	}
	list, more, err := x.touchedBy(ctx, s, foreseen)
	if err != nil {
		return plan.Plan{}, err
	}
	out.More = more
	after, err := x.parts.place.Foresee(ctx, s.clusters, list)
	if err != nil {
		return plan.Plan{}, err
	}
	for _, c := range x.parts.state.Clusters.List() {
		out.ViewsBefore[c.Name] = x.parts.state.Views.Stated(c)
	}
	for _, c := range s.clusters.List() {
		view := x.parts.state.Views.Stated(c)
		if _, changed := s.clusters.Changed[c.Name]; changed {
			view.Sets = s.clusters.SetsOf(c.Labels)
		}
		out.ViewsAfter[c.Name] = view
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
	out.Unplaced = x.unplaced(s, after)
	p := plan.Of(out)
	p.Refused, p.Unchecked = in.Refused, in.Unchecked
	return p, nil
}

// touchedBy lists the Bundles to look at: those that bind foresees, and, where a cluster
// changes, all others too, up to a bound.
func (x *explainer) touchedBy(ctx context.Context, s *supposed, foreseen []bind.Foreseen) (list []place.Supposed, more int, err error) {
	known := map[string]bool{}
	for _, f := range foreseen {
		known[f.Bundle.Ref.UID] = true
		if f.Waits == "" {
			list = append(list, place.Supposed{Bundle: f.Bundle, Revision: f.Revision, Content: f.Content})
		}
	}
	if len(s.clusters.Changed) == 0 {
		return list, 0, nil
	}
	for _, b := range x.parts.state.Bundles.List() {
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

func (x *explainer) change(ctx context.Context, f place.Foreseen, byID map[claim.BundleID]bind.Foreseen) plan.Change {
	ref := f.Bundle.Ref
	c := plan.Change{
		ID: claim.BundleID{Namespace: ref.Namespace, Name: ref.Name}, Source: f.Bundle.Spec.Source,
		Revision: f.Revision, Content: f.Content, Contents: map[string]*atoll.Content{},
		Before: f.Before, After: f.After, Decision: f.Decision, Held: f.Held, Waiting: f.Waits, Short: f.Short,
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

// unplaced templates among the written ones.
func (x *explainer) unplaced(s *supposed, after []place.Foreseen) (out []plan.Unplaced) {
	held := map[atoll.ItemKey]bool{}
	for _, f := range after {
		for i := range f.Content.Items {
			held[f.Content.Items[i].Key] = true
		}
	}
	for key, t := range s.templates {
		if t.GetDeletionTimestamp() == nil && !held[key] && key.Kind != "Namespace" && !state.NeverTemplate(claim.GroupKind(key)) {
			out = append(out, plan.Unplaced{Key: key, Why: "no policy and no annotation that wins selects it, or what does names no cluster"})
		}
	}
	slices.SortFunc(out, func(a, b plan.Unplaced) int { return a.Key.Compare(b.Key) })
	return out
}

// supposed is the tables as they would be.
type supposed struct {
	state      *state.State
	templates  map[atoll.ItemKey]*unstructured.Unstructured
	policies   []client.Object
	namespaces []*corev1.Namespace
	clusters   place.With
}

// suppose that the objects are written.
func (x *explainer) suppose(in planRequest) (*supposed, error) {
	s := &supposed{
		state: x.parts.state, templates: map[atoll.ItemKey]*unstructured.Unstructured{},
		clusters: place.With{Clusters: x.parts.state.Clusters, Changed: map[string]*v1alpha1.Cluster{}, SetsOf: x.parts.state.Sets.OfLabels},
	}
	for i, list := range [][]*unstructured.Unstructured{in.Objects, in.Deleted} {
		for _, o := range list {
			if o == nil || o.GetKind() == "" || o.GetName() == "" {
				return nil, errors.New("an object has no kind or no name")
			}
			if err := s.write(o, i == 1, x.now); err != nil {
				return nil, fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
			}
		}
	}
	return s, nil
}

// write one object, or delete it.
func (s *supposed) write(o *unstructured.Unstructured, deleted bool, now time.Time) error {
	key := claim.KeyOf(o)
	if o.GetUID() == "" {
		o.SetUID(types.UID("new:" + key.String()))
		o.SetCreationTimestamp(metav1.NewTime(now))
	}
	if key.Group == v1alpha1.GroupVersion.Group {
		return s.writeOurs(o, deleted, now)
	}
	if deleted {
		is, ok := s.state.Templates.Get(key)
		if !ok {
			return nil
		}
		o = is.DeepCopy()
		at := metav1.NewTime(now)
		o.SetDeletionTimestamp(&at)
	}
	if key.Group == "" && key.Kind == "Namespace" {
		ns := &corev1.Namespace{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, ns); err != nil {
			return fmt.Errorf("read it: %w", err)
		}
		s.namespaces = append(s.namespaces, ns)
	}
	s.templates[key] = o
	return nil
}

// writeOurs is for objects of Atoll's own API.
func (s *supposed) writeOurs(o *unstructured.Unstructured, deleted bool, now time.Time) error {
	var into client.Object
	switch o.GetKind() {
	case "Cluster":
		if deleted {
			s.clusters.Changed[o.GetName()] = nil
			return nil
		}
		c := &v1alpha1.Cluster{}
		s.clusters.Changed[o.GetName()], into = c, c
	case "PropagationPolicy":
		into = &v1alpha1.PropagationPolicy{}
	case "ClusterPropagationPolicy":
		into = &v1alpha1.ClusterPropagationPolicy{}
	case "OverridePolicy":
		into = &v1alpha1.OverridePolicy{}
	case "ClusterOverridePolicy":
		into = &v1alpha1.ClusterOverridePolicy{}
	default:
		return fmt.Errorf("what a %s would change cannot be foretold", o.GetKind())
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
		return fmt.Errorf("read it: %w", err)
	}
	if o.GetKind() == "Cluster" {
		return nil
	}
	if deleted {
		at := metav1.NewTime(now)
		into.SetDeletionTimestamp(&at)
	}
	s.policies = append(s.policies, into)
	return nil
}

// binding is what bind is asked.
func (s *supposed) binding() bind.Supposed {
	out := bind.Supposed{
		Templates: s.state.Templates.With(s.templates), Namespaces: s.state.Namespaces.With(s.namespaces...), Policies: s.state.Policies.With(s.policies...),
	}
	for key := range s.templates {
		out.ChangedTemplates = append(out.ChangedTemplates, key)
	}
	slices.SortFunc(out.ChangedTemplates, atoll.ItemKey.Compare)
	for _, ns := range s.namespaces {
		out.ChangedNamespaces = append(out.ChangedNamespaces, ns.Name)
	}
	for _, p := range s.policies {
		out.ChangedPolicies = append(out.ChangedPolicies, bind.PolicyKey(state.PolicyKeyOf(p)))
	}
	return out
}
