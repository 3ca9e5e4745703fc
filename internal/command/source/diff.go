package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/command/plan"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/objectdiff"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/preview"
	"atoll.dev/atoll/internal/sources/changes"
	"atoll.dev/atoll/internal/sources/render"
)

// maxParallelRequests is how many objects are compared at the same time.
const maxParallelRequests = 16

// diffOptions of one comparison.
type diffOptions struct {
	flags          *client.ConnectionFlags
	format         output.Format
	local, program string
	all            bool
}

func newDiffCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &diffOptions{flags: flags}
	cmd := &cobra.Command{
		Use:   "diff NAME --local DIR [-n NAMESPACE]",
		Short: "Show what a directory would change if it were the next commit of a Source",
		Long: `Show what a directory would change if it were the next commit of a Source.

DIR is the root of the repository, such as the checkout of a branch or of a pull request. It is rendered as by
"atoll source render". The hub answers a dry run of each object that differs from the applied commit, and
plans what would come of them in which cluster, with the functions that act. Nothing is written.

The dry runs need your own rights to write the objects. Values of Secrets are not shown, and no values at all where
the Source reads values of a Secret, which you must be allowed to get. -o markdown prints a
comment for a pull request.

The exit code is 0 if nothing would change, 2 if something would or is refused, and 1 if the
comparison could not be made.`,
		Example: `  atoll source diff shop -n shop --local .
  atoll source diff shop -n shop --local . -o markdown > comment.md`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), args[0])
		},
	}
	flags.AddNamespace(cmd.Flags())
	f := cmd.Flags()
	f.StringVar(&o.local, "local", "", "directory with the files of the commit")
	f.StringVar(&o.program, "hub-program", "", "path of "+hubProgram+" (default: beside atoll, or in the PATH)")
	f.BoolVar(&o.all, "all", false, "leave nothing of many fields and clusters to a count")
	o.format.AddTo(f, "json", "yaml", "markdown")
	_ = cmd.MarkFlagRequired("local") // it fails for an unknown flag alone
	return cmd
}

func (o *diffOptions) run(ctx context.Context, out io.Writer, name string) error {
	c, err := o.flags.LoadClusterConnection()
	if err != nil {
		return err
	}
	s, err := client.Get[v1alpha1.Source](ctx, c, sources, c.Namespace, name)
	if err != nil {
		return err
	}
	d, err := o.compareDirectory(ctx, c, s)
	if err != nil {
		return err
	}
	if o.format.IsFormat("markdown") {
		_, err = io.WriteString(out, d.formatMarkdown(o.all))
	} else if done, printErr := o.format.PrintStructured(out, d); done || printErr != nil {
		err = printErr
	} else {
		_, err = io.WriteString(out, d.formatText(o.all))
	}
	if err == nil && d.hasChanges() {
		return plan.ErrChanges
	}
	return err
}

// compareDirectory renders the directory, and compares it with the hub.
func (o *diffOptions) compareDirectory(ctx context.Context, c *client.Connection, s *v1alpha1.Source) (*contentDiff, error) {
	inputs, err := readInputs(ctx, c, s)
	if err != nil {
		return nil, err
	}
	result, err := renderDirectory(ctx, o.local, s, inputs, o.program)
	if err != nil {
		return nil, err
	}
	if err := checkComplete(result); err != nil {
		return nil, err
	}
	if len(result.Objects) == 0 {
		return nil, &changes.EmptyContent
	}
	return compareContent(ctx, c, s, result, inputs.Digest())
}

// contentDiff is what a content would change on the hub and in clusters.
type contentDiff struct {
	Namespace string `json:"namespace"`
	Source    string `json:"source"`
	// Commit that is applied; empty when none is.
	Commit string `json:"commit,omitempty"`
	// Suspended is true while the Source or its Repository is suspended, so that the hub takes no commit.
	Suspended bool `json:"suspended,omitempty"`
	// Objects that differ, in the order of the content, and then those that the content lacks.
	Objects []objectChange `json:"objects,omitempty"`
	// Unchanged is the number of objects that the commit applied already.
	Unchanged int          `json:"unchanged"`
	Plan      preview.Plan `json:"plan"`
}

// changeKind is what happens to an object of the hub.
type changeKind string

// The kinds of changes.
const (
	changeCreated   changeKind = "Created"
	changeChanged   changeKind = "Changed"
	changeRemoved   changeKind = "Removed"
	changeKept      changeKind = "Kept"
	changeRefused   changeKind = "Refused"
	changeUnchecked changeKind = "Unchecked"
)

// objectChange is the change of one object.
type objectChange struct {
	Change    changeKind `json:"change"`
	Kind      string     `json:"kind"`
	Namespace string     `json:"namespace,omitempty"`
	Name      string     `json:"name"`
	File      string     `json:"file,omitempty"`
	Line      int        `json:"line,omitempty"`
	// Fields that change.
	Fields []fieldChange `json:"fields,omitempty"`
	// Why the object is kept, refused or not checked.
	Why string `json:"why,omitempty"`
	// stored is the object as the hub would store it.
	stored *unstructured.Unstructured
}

// fieldChange is a field with two values.
type fieldChange struct {
	// Path is a JSON Pointer. An element of a list is named by its index, or as name=NAME.
	Path   string `json:"path"`
	Before any    `json:"before,omitempty"`
	After  any    `json:"after,omitempty"`
	// Hidden is true for a field whose values are not shown, because they are of a Secret or may be.
	Hidden bool `json:"hidden,omitempty"`
}

// hasChanges reports whether the content would change anything, or is refused in part.
func (d *contentDiff) hasChanges() bool {
	isChange := func(o objectChange) bool { return o.Change != changeKept }
	return d.Plan.Changes || len(d.Plan.Refused) > 0 || slices.ContainsFunc(d.Objects, isChange)
}

// comparison compares the content of a Source with the hub. Make it with compareContent.
type comparison struct {
	source *v1alpha1.Source
	client dynamic.Interface
	kinds  *client.Kinds
	wanted changes.Templates
	// namespaces and definedKinds are in the content itself.
	namespaces   map[string]bool
	definedKinds map[schema.GroupKind]bool
}

// compareContent returns what the content would change, as the hub decides it of a commit.
func compareContent(ctx context.Context, c *client.Connection, s *v1alpha1.Source, content render.Result, inputs string) (*contentDiff, error) {
	x, err := newComparison(ctx, c, s, content)
	if err != nil {
		return nil, err
	}
	// Without its URL, every object that the content lacks would look as if it stayed.
	repo, err := client.Get[v1alpha1.Repository](ctx, c, repositories, s.Namespace, s.Spec.Repository)
	if err != nil {
		return nil, fmt.Errorf("read the Repository of the Source, which decides what a commit removes: %w", err)
	}
	decided := changes.Decide(changes.Input{
		Source: s, Wanted: x.wanted.Keys, Inventory: s.Status.Inventory, Prune: s.Spec.Prune,
		SameSettings: s.Status.Settings == changes.DigestSettings(s, changes.PlaceOf(&repo.Spec).URL, content, inputs),
		ApplyAll:     !s.Status.SyncRequest.Equal(s.Spec.SyncRequest),
	})
	if tooLarge := changes.CheckSize(slices.Concat(x.wanted.Keys, decided.Keep, decided.Remove)); tooLarge != nil {
		return nil, tooLarge
	}
	changes.SortForApply(x.wanted.Keys, decided.Apply)
	out := &contentDiff{Namespace: s.Namespace, Source: s.Name, Commit: s.Status.Commit, Suspended: s.Spec.Suspend || repo.Spec.Suspend, Unchanged: len(decided.Unchanged)}
	if out.Objects, err = x.compareObjects(ctx, decided); err != nil {
		return nil, c.ExplainError(err)
	}
	// An object that an edit on the hub made equal to the content is the same.
	isSame := func(o objectChange) bool { return o.Change == changeChanged && len(o.Fields) == 0 }
	request := newPlanRequest(out.Objects)
	before := len(out.Objects)
	out.Objects = slices.DeleteFunc(out.Objects, isSame)
	out.Unchanged += before - len(out.Objects)
	if out.Plan, err = plan.AskHub(ctx, c, request); changes.ReadsSecrets(s) {
		out.hideValues()
	}
	return out, err
}

// hideValues hides the values of all fields. Any of them can be made of a value of a Secret that the Source reads.
func (d *contentDiff) hideValues() {
	for i := range d.Objects {
		for n := range d.Objects[i].Fields {
			f := &d.Objects[i].Fields[n]
			f.Before, f.After, f.Hidden = nil, nil, true
		}
	}
	for _, b := range d.Plan.Bundles {
		for _, r := range b.Rows {
			for _, item := range r.Items {
				for n := range item.Fields {
					f := &item.Fields[n]
					f.Before, f.After, f.Hidden = nil, nil, true
				}
			}
		}
	}
}

// readInputs reads the values that a Source names, by the user's own rights.
func readInputs(ctx context.Context, c *client.Connection, s *v1alpha1.Source) (render.Inputs, error) {
	return changes.CollectInputs(s, func(ref v1alpha1.ValuesReference) (*unstructured.Unstructured, error) {
		object, err := c.Dynamic.Resource(changes.ResourceOfReference(ref)).Namespace(s.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("read the %s %s, which valuesFrom names: %w", ref.Kind, ref.Name, c.ExplainError(err))
		}
		return object, nil
	})
}

func newComparison(ctx context.Context, c *client.Connection, s *v1alpha1.Source, content render.Result) (*comparison, error) {
	api, err := c.NewSilentClient()
	if err != nil {
		return nil, err
	}
	x := &comparison{source: s, client: api, kinds: c.ServedKinds(), namespaces: map[string]bool{}, definedKinds: map[schema.GroupKind]bool{}}
	var failed error
	wanted, problems := changes.NewTemplates(s, content, "", func(gvk schema.GroupVersionKind) (changes.ServedKind, bool) {
		m, err := x.kinds.MappingFor(ctx, gvk)
		if err != nil {
			if !meta.IsNoMatchError(err) {
				failed = cmp.Or(failed, err)
			}
			return changes.ServedKind{}, false
		}
		return changes.ServedKind{Resource: m.Resource, IsNamespaced: m.Scope.Name() == meta.RESTScopeNameNamespace}, true
	})
	if failed != nil {
		return nil, c.ExplainError(failed)
	}
	if err := joinProblems(problems); err != nil {
		return nil, err
	}
	x.wanted = wanted
	for _, u := range wanted.Objects {
		switch u.GroupVersionKind().GroupKind() {
		case schema.GroupKind{Kind: "Namespace"}:
			x.namespaces[u.GetName()] = true
		case schema.GroupKind{Group: apiextensionsv1.GroupName, Kind: "CustomResourceDefinition"}:
			x.definedKinds[kinds.DefinedKind(u)] = true
		}
	}
	return x, nil
}

// compareObjects returns the changes of what would be applied, removed and newly kept. Nothing is removed while an object is
// refused.
func (x *comparison) compareObjects(ctx context.Context, decided changes.Decision) ([]objectChange, error) {
	applied := make([]objectChange, len(decided.Apply))
	removed := make([]objectChange, len(decided.Remove))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxParallelRequests)
	for n, i := range decided.Apply {
		group.Go(func() (err error) {
			applied[n], err = x.compareObject(ctx, i)
			return err
		})
	}
	for n, o := range decided.Remove {
		group.Go(func() (err error) {
			removed[n], err = x.compareDropped(ctx, o)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	keepPolicies(x.source, decided.Remove, removed)
	isRefused := func(o objectChange) bool { return o.Change == changeRefused }
	if slices.ContainsFunc(applied, isRefused) {
		for n := range removed {
			if removed[n].Change == changeRemoved {
				removed[n].Change, removed[n].Why = changeKept, "nothing is removed while an object of the content is refused"
			}
		}
	}
	for _, o := range decided.Keep {
		if !slices.ContainsFunc(x.source.Status.Inventory, func(was v1alpha1.SourceObject) bool { return was.Kept != "" && changes.KeyOf(was) == changes.KeyOf(o) }) {
			removed = append(removed, newObjectChange(changeKept, o, o.Kept))
		}
	}
	isAbsent := func(o objectChange) bool { return o.Change == "" }
	return slices.DeleteFunc(slices.Concat(applied, removed), isAbsent), nil
}

// keepPolicies keeps the policies of variants whose objects stay.
func keepPolicies(s *v1alpha1.Source, dropped []v1alpha1.SourceObject, removed []objectChange) {
	staying := map[string]string{}
	for n, o := range dropped {
		if removed[n].Change == changeKept {
			staying[changes.NamePolicy(s, o)] = removed[n].Why
		}
	}
	for n, o := range dropped {
		if why, stays := staying[o.Name]; stays && changes.IsOverridePolicy(s.Name, o) && removed[n].Change == changeRemoved {
			removed[n] = newObjectChange(changeKept, o, why)
		}
	}
}

func newObjectChange(change changeKind, o v1alpha1.SourceObject, why string) objectChange {
	return objectChange{Change: change, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Why: why}
}

// compareObject returns what an apply would change of an object, by a dry run.
func (x *comparison) compareObject(ctx context.Context, i int) (objectChange, error) {
	u := x.wanted.Objects[i]
	out := newObjectChange(changeCreated, x.wanted.Keys[i], "")
	out.File, out.Line = x.wanted.Places[i].File, x.wanted.Places[i].Line
	if x.wanted.Resources[i].Empty() {
		if !x.definedKinds[u.GroupVersionKind().GroupKind()] {
			out.Change, out.Why = changeRefused, "the hub does not serve this kind; apply its CustomResourceDefinition"
			return out, nil
		}
		out.Change, out.Why, out.stored = changeUnchecked, "its kind comes with the same content", u
		return out, nil
	}
	api := x.objectsOf(x.wanted.Resources[i], u.GetNamespace())
	before, err := api.Get(ctx, u.GetName(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return x.refuseObject(out, x.wanted.Keys[i], err)
	}
	exists := err == nil
	if exists {
		u = changes.KeepGenerated(u, before, x.wanted.Generated[i])
	}
	out.stored, err = api.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{
		FieldManager: changes.FieldManagerOf(x.source), Force: x.source.Spec.Force, DryRun: []string{metav1.DryRunAll},
	})
	switch {
	case apierrors.IsNotFound(err) && x.namespaces[u.GetNamespace()]:
		out.Change, out.Why, out.stored = changeUnchecked, "its namespace comes with the same content", u
		return out, nil
	case err != nil:
		return x.refuseObject(out, x.wanted.Keys[i], err)
	case exists:
		out.Change = changeChanged
		out.Fields = listFieldChanges(before, out.stored)
	}
	return out, nil
}

// refuseObject returns an object that the hub refuses. The error is one that is not about the object.
func (x *comparison) refuseObject(o objectChange, key v1alpha1.SourceObject, err error) (objectChange, error) {
	if !changes.IsRefusal(err) {
		return o, err
	}
	o.Change, o.Why, o.stored = changeRefused, changes.DescribeError(x.source, key, err), nil
	return o, nil
}

// listFieldChanges lists the fields that differ.
func listFieldChanges(before, after *unstructured.Unstructured) (out []fieldChange) {
	isSecret := after.GroupVersionKind().GroupKind() == schema.GroupKind{Kind: "Secret"}
	for _, d := range objectdiff.Compare(changes.TemplateFields(before), changes.TemplateFields(after)) {
		f := fieldChange{Path: d.Path, Before: d.Before, After: d.After}
		if isSecret {
			f.Before, f.After, f.Hidden = nil, nil, true
		}
		out = append(out, f)
	}
	return out
}

// compareDropped returns the change of an object that the content lacks; no change for one that does not exist.
func (x *comparison) compareDropped(ctx context.Context, o v1alpha1.SourceObject) (objectChange, error) {
	m, err := x.kinds.MappingFor(ctx, schema.FromAPIVersionAndKind(o.APIVersion, o.Kind))
	if meta.IsNoMatchError(err) {
		return newObjectChange(changeKept, o, string(atoll.ReasonKindUnserved)), nil
	}
	if err != nil {
		return objectChange{}, err
	}
	existing, err := x.objectsOf(m.Resource, o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return objectChange{}, nil
	case apierrors.IsForbidden(err):
		return newObjectChange(changeUnchecked, o, "it would be removed, if the Source still owns it, and you may not read it"), nil
	case err != nil:
		return objectChange{}, err
	}
	if why := changes.FindOwner(o, existing, x.source.Name, changes.FieldManagerOf(x.source)); why != "" {
		return newObjectChange(changeKept, o, string(why)), nil
	}
	out := newObjectChange(changeRemoved, o, "")
	out.stored = existing
	return out, nil
}

func (x *comparison) objectsOf(resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return x.client.Resource(resource)
	}
	return x.client.Resource(resource).Namespace(namespace)
}

// newPlanRequest returns the request of a plan of the changes.
func newPlanRequest(objects []objectChange) (r plan.Request) {
	for _, o := range objects {
		refusal := preview.Refusal{Object: phrase.EscapeLine(o.describeObject()), Why: phrase.EscapeLine(o.Why)}
		switch o.Change {
		case changeRefused:
			refusal.Reason = atoll.ReasonRefused
			r.Refused = append(r.Refused, refusal)
			continue
		case changeUnchecked:
			refusal.Reason = atoll.ReasonNotOnHubYet
			r.Unchecked = append(r.Unchecked, refusal)
		}
		switch {
		case o.stored == nil:
		case o.Change == changeRemoved:
			r.AddDeleted(o.stored)
		default:
			r.AddWritten(o.stored)
		}
	}
	return r
}

// describeObject returns the kind and the name of an object.
func (o *objectChange) describeObject() string {
	return o.Kind + " " + strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
}

// joinProblems returns the problems of a content as one error; nil when there is none.
func joinProblems(problems []render.Problem) error {
	errs := make([]error, 0, len(problems))
	for _, p := range problems {
		errs = append(errs, errors.New(phrase.EscapeLine(p.Format())))
	}
	return errors.Join(errs...)
}
