package policymatch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/jsonpointer"
	"atoll.dev/atoll/internal/kinds"
)

// MaxIgnoredFields is the number of fields that an object's annotation may list, as a rule may.
const MaxIgnoredFields = 64

// ItemRules are the rules of a source with parsed selectors.
type ItemRules []itemRule

type itemRule struct {
	*v1alpha1.ItemRule
	// selectors without the malformed ones, which admission rejects.
	selectors []overrideSelector
}

// CompileItemRules parses the selectors of the rules.
func CompileItemRules(rules []v1alpha1.ItemRule) ItemRules {
	out := make(ItemRules, len(rules))
	for i := range rules {
		out[i] = itemRule{&rules[i], compileSelectors(rules[i].ResourceSelectors)}
	}
	return out
}

// TreatmentOf returns how members treat the object: by its annotations, then by the first rule that
// states a field. The ServiceAccount is as the rule has it. Nil: as all others. The error describes an annotation without a meaning.
func (r ItemRules) TreatmentOf(s Subject) (*atoll.Treatment, error) {
	t, err := annotatedTreatment(s.Annotations)
	if err != nil {
		return nil, err
	}
	for i := range r {
		if rule := &r[i]; rule.selectsSubject(s) {
			rule.addTo(&t)
		}
	}
	if t.Update == v1alpha1.UpdateApply {
		t.Update = ""
	}
	if t.Drift == v1alpha1.DriftCorrect {
		t.Drift = ""
	}
	if t.Assessment = assessmentFor(s.Key, t.Assessment); s.Key.IsSecret() {
		t.Assessment = nil
	}
	if t.IsEmpty() {
		return nil, nil
	}
	return &t, nil
}

// addTo adds to a treatment what the rule states and the treatment lacks.
func (r *itemRule) addTo(t *atoll.Treatment) {
	t.Update, t.Drift, t.Removal = cmp.Or(t.Update, r.Update), cmp.Or(t.Drift, r.Drift), cmp.Or(t.Removal, r.Removal)
	t.ConflictResolution, t.ServiceAccount = cmp.Or(t.ConflictResolution, r.ConflictResolution), cmp.Or(t.ServiceAccount, r.ServiceAccount)
	if t.IgnoreFields == nil {
		t.IgnoreFields = slices.Sorted(slices.Values(r.IgnoreFields))
	}
	r.addAssessmentTo(t)
}

// assessmentFor returns an assessment without what cannot occur for an object of the key: an object that never runs to
// completion is not deleted after it.
func assessmentFor(key atoll.ItemKey, a *atoll.Assessment) *atoll.Assessment {
	if a == nil || a.TTLSecondsAfterFinished == nil || a.Completion != "" || kinds.RunsOnce(GroupKindOf(key)) {
		return a
	}
	out := *a
	if out.TTLSecondsAfterFinished = nil; out.IsEmpty() {
		return nil
	}
	return &out
}

// addAssessmentTo adds feedback, health, completion and the time after it that the rule states and the treatment lacks.
func (r *itemRule) addAssessmentTo(t *atoll.Treatment) {
	a := atoll.Assessment{}
	if t.Assessment != nil {
		a = *t.Assessment
	}
	if len(a.Feedback) == 0 {
		a.Feedback = r.Feedback
	}
	if len(a.Health) == 0 {
		a.Health = r.Health
	}
	if a.Completion == "" && r.Completion != nil {
		a.Completion = r.Completion.Expression
	}
	if a.TTLSecondsAfterFinished == nil {
		a.TTLSecondsAfterFinished = r.TTLSecondsAfterFinished
	}
	if !a.IsEmpty() {
		t.Assessment = &a
	}
}

func (r *itemRule) selectsSubject(s Subject) bool {
	if len(r.ResourceSelectors) == 0 {
		return true
	}
	kinds := selectingKinds(GroupKindOf(s.Key))
	return slices.ContainsFunc(r.selectors, func(sel overrideSelector) bool {
		return slices.Contains(kinds[:], sel.kind) && sel.selectsName(s.Key) &&
			(sel.labels == nil || sel.labels.Matches(labels.Set(s.Labels)))
	})
}

// selectsName reports whether the selector is for objects of the key's namespace and name.
func (s compiledSelector) selectsName(key atoll.ItemKey) bool {
	return (s.namespace == "" || s.namespace == key.Namespace) && (s.name == "" || s.name == key.Name)
}

// annotatedTreatment returns what annotations of an object state. An empty list of fields overrules
// the lists of rules.
func annotatedTreatment(annotations map[string]string) (t atoll.Treatment, err error) {
	if t.Update, err = annotatedMode(annotations, atoll.AnnotationUpdate, v1alpha1.UpdateApply, v1alpha1.UpdateCreateOnly, v1alpha1.UpdateReadOnly, v1alpha1.UpdateRecreate); err != nil {
		return t, err
	}
	if t.Drift, err = annotatedMode(annotations, atoll.AnnotationDrift, v1alpha1.DriftCorrect, v1alpha1.DriftReport, v1alpha1.DriftApprove); err != nil {
		return t, err
	}
	if t.Removal, err = annotatedMode(annotations, atoll.AnnotationRemoval, v1alpha1.RemoveDelete, v1alpha1.RemoveOrphan, v1alpha1.RemoveConfirm, v1alpha1.RemoveLast, v1alpha1.RemoveWithBundle); err != nil {
		return t, err
	}
	if t.ConflictResolution, err = annotatedMode(annotations, atoll.AnnotationConflict, v1alpha1.ConflictAbort, v1alpha1.ConflictAdoptIfSame, v1alpha1.ConflictOverwrite); err != nil {
		return t, err
	}
	if t.Wave, err = annotatedWave(annotations); err != nil {
		return t, err
	}
	if t.Hook, err = annotatedHook(annotations); err != nil {
		return t, err
	}
	if value, stated := annotations[atoll.AnnotationIgnoreFields]; stated {
		if t.IgnoreFields, err = parseIgnoredFields(value); err != nil {
			return t, fmt.Errorf("annotation %s: %w", atoll.AnnotationIgnoreFields, err)
		}
	}
	return t, nil
}

// annotatedWave returns the wave that annotations state: Atoll's own, or else that of Argo CD. 0 without either.
// A malformed value of Argo CD's annotation is wave 0, as Argo CD itself reads it.
func annotatedWave(annotations map[string]string) (int32, error) {
	if value, stated := annotations[atoll.AnnotationWave]; stated {
		wave, err := atoll.ParseWave(value)
		if err != nil {
			return 0, fmt.Errorf("annotation %s: %w", atoll.AnnotationWave, err)
		}
		return wave, nil
	}
	wave, err := atoll.ParseWave(annotations[atoll.AnnotationArgoCDWave])
	if err != nil {
		return 0, nil
	}
	return wave, nil
}

// CheckArgoCDWave returns why the wave that Argo CD's annotation states counts as 0. Nil: the wave is read, or another one counts.
func CheckArgoCDWave(annotations map[string]string) error {
	value, stated := annotations[atoll.AnnotationArgoCDWave]
	if _, own := annotations[atoll.AnnotationWave]; own || !stated {
		return nil
	}
	if _, err := atoll.ParseWave(value); err != nil {
		return fmt.Errorf("annotation %s: %w: the object is of wave 0", atoll.AnnotationArgoCDWave, err)
	}
	return nil
}

// annotatedMode returns the value of an annotation that is one of the modes; empty without the annotation.
func annotatedMode[M ~string](annotations map[string]string, name string, modes ...M) (M, error) {
	value, stated := annotations[name]
	if !stated || slices.Contains(modes, M(value)) {
		return M(value), nil
	}
	names := make([]string, len(modes))
	for i, mode := range modes {
		names[i] = string(mode)
	}
	return M(value), fmt.Errorf("annotation %s is one of %s, and not %q", name, strings.Join(names, ", "), value)
}

func parseIgnoredFields(value string) ([]string, error) {
	out := []string{}
	for path := range strings.SplitSeq(value, ",") {
		if path = strings.TrimSpace(path); path == "" {
			continue
		}
		if len(out) == MaxIgnoredFields {
			return nil, fmt.Errorf("more than %d fields", MaxIgnoredFields)
		}
		if err := CheckIgnoredField(path); err != nil {
			return nil, err
		}
		out = append(out, path)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// hubFields are those by which an object is the same on the hub and in a member.
var hubFields = []string{"/apiVersion", "/kind", "/metadata", "/metadata/name", "/metadata/namespace", "/metadata/labels", "/metadata/annotations"}

// CheckIgnoredFieldsOfRules returns the ignored fields of rules that no member can own.
func CheckIgnoredFieldsOfRules(rules []v1alpha1.ItemRule, at *field.Path) (errs field.ErrorList) {
	for i := range rules {
		for j, path := range rules[i].IgnoreFields {
			if err := CheckIgnoredField(path); err != nil {
				errs = append(errs, field.Invalid(at.Index(i).Child("ignoreFields").Index(j), path, err.Error()))
			}
		}
	}
	return errs
}

// CheckIgnoredField returns an error for a path that no member can own.
func CheckIgnoredField(path string) error {
	parts, err := jsonpointer.ParsePointer(path)
	switch {
	case err != nil:
		return err
	case slices.Contains(parts, ""):
		return fmt.Errorf("%q has a part without a name", path)
	case slices.Contains(hubFields, path):
		return fmt.Errorf("%q cannot belong to a member: name a field below spec or data, a label or an annotation", path)
	case parts[0] == "status":
		return fmt.Errorf("%q belongs to the member without a rule", path)
	}
	return nil
}

// WithServiceAccount returns a treatment of the object of the key with its ServiceAccount as NAMESPACE/NAME. The one
// that the Namespace names, if any, replaces that of rules. A plain name is in the object's namespace, or in that of
// the Bundle for a cluster-scoped object. t is not changed.
func WithServiceAccount(t *atoll.Treatment, ofNamespace string, key atoll.ItemKey, bundleNamespace string) (*atoll.Treatment, error) {
	account := cmp.Or(ofNamespace, t.WritingServiceAccount())
	if account == "" {
		return t, nil
	}
	account, err := atoll.QualifyServiceAccount(account, cmp.Or(key.TargetNamespace(), bundleNamespace))
	if err != nil {
		return nil, fmt.Errorf("serviceAccount: %w", err)
	}
	out := atoll.Treatment{}
	if t != nil {
		out = *t
	}
	out.ServiceAccount = account
	return &out, nil
}

// CheckServiceAccountAnnotation returns an error for the annotation that names a ServiceAccount, where it is malformed
// or on another object than a Namespace.
func CheckServiceAccountAnnotation(isNamespace bool, annotations map[string]string) error {
	value, stated := annotations[atoll.AnnotationServiceAccount]
	if !stated {
		return nil
	}
	if !isNamespace {
		return fmt.Errorf("annotation %s counts on a Namespace alone: for single objects, set serviceAccount in itemRules of their policy", atoll.AnnotationServiceAccount)
	}
	if err := atoll.CheckServiceAccount(value); err != nil {
		return fmt.Errorf("annotation %s: %w", atoll.AnnotationServiceAccount, err)
	}
	return nil
}

// TreatmentAnnotations returns those of the annotations that state how members treat an object.
func TreatmentAnnotations(annotations map[string]string) map[string]string {
	var out map[string]string
	for _, name := range []string{atoll.AnnotationUpdate, atoll.AnnotationIgnoreFields, atoll.AnnotationDrift, atoll.AnnotationConflict, atoll.AnnotationRemoval, atoll.AnnotationWave, atoll.AnnotationArgoCDWave,
		atoll.AnnotationHook, atoll.AnnotationHookDelete, atoll.AnnotationArgoCDHook, atoll.AnnotationArgoCDHookDelete} {
		if value, stated := annotations[name]; stated {
			if out == nil {
				out = map[string]string{}
			}
			out[name] = value
		}
	}
	return out
}
