package overrides

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/jsonpointer"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/userfields"
)

// OverriderProblem is an error of one field.
type OverriderProblem struct {
	// Path of the field below the checked overriders, such as plaintext[0].path.
	Path   string
	Reason string
}

// CheckOverriders returns why overriders can never apply: patches and images that cannot be parsed,
// and fields that overrides never change. Admission refuses them, and so does ApplyRules.
func CheckOverriders(o v1alpha1.Overriders) []OverriderProblem {
	var out []OverriderProblem
	for _, s := range listSteps(&o) {
		out = append(out, checkStep(s)...)
	}
	slices.SortStableFunc(out, func(a, b OverriderProblem) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// CheckOverridersOnWrite returns what is wrong with overriders that a user writes: what CheckOverriders returns,
// and the syntax of keys and values, which stored overriders of older hubs may break.
func CheckOverridersOnWrite(o v1alpha1.Overriders) []OverriderProblem {
	out := CheckOverriders(o)
	for _, s := range listSteps(&o) {
		if s.kind != nil {
			s.kind.checkWritten(&s.overrider, s.newReporter(&out))
		}
	}
	return out
}

// newReporter returns a function that appends the problems of the step.
func (s *overrideStep) newReporter(out *[]OverriderProblem) problemReporter {
	return func(below, reason string) {
		*out = append(*out, OverriderProblem{Path: s.name + below, Reason: reason})
	}
}

func checkStep(s overrideStep) (out []OverriderProblem) {
	if s.kind == nil {
		return nil
	}
	report := s.newReporter(&out)
	checkValueSources(s, report)
	s.kind.checkStored(&s.overrider, report)
	return out
}

var errImageTwice = errors.New("it has either a predicate or a containerName")

func checkImage(im *v1alpha1.ImageOverrider, report problemReporter) {
	if im.Predicate != nil && im.ContainerName != "" {
		report(".containerName", errImageTwice.Error())
	}
	if p := im.Predicate; p != nil {
		if _, err := parseAllowedPath(p.Path, nil); err != nil {
			report(".predicate.path", err.Error())
		}
	}
	if reason := checkImageValue(*im); reason != "" && im.ValueFrom == nil {
		report(".value", reason)
	}
}

func checkResources(r *v1alpha1.ResourcesOverrider, report problemReporter) {
	if len(r.Requests)+len(r.Limits) == 0 {
		report("", "it names neither requests nor limits")
	}
}

func checkMergePatch(p *apiextensionsv1.JSON, report problemReporter) {
	if _, err := parseAllowedMergePatch(p.Raw); err != nil {
		report("", err.Error())
	}
}

func checkKeys(l *v1alpha1.LabelAnnotationOverrider, report problemReporter) {
	for _, key := range sortedKeys(l.Value) {
		if userfields.IsHubKey(key) {
			report(".value["+key+"]", "overrides never touch what is Atoll's own")
		}
	}
	for _, key := range sortedKeys(l.ValueFrom) {
		if userfields.IsHubKey(key) {
			report(".valueFrom["+key+"]", "overrides never touch what is Atoll's own")
		}
	}
	if len(l.Value)+len(l.ValueFrom) == 0 {
		report(".value", "it names no key")
	}
}

// checkKeySyntax reports keys that labels and annotations cannot have, and values that validate refuses.
func checkKeySyntax(l *v1alpha1.LabelAnnotationOverrider, validate func(string) []string, report problemReporter) {
	for _, key := range sortedKeys(l.Value) {
		for _, problem := range validation.IsQualifiedName(key) {
			report(".value", key+": "+problem)
		}
		if validate == nil || l.Operator == v1alpha1.OverrideRemove {
			continue
		}
		for _, problem := range validate(l.Value[key]) {
			report(".value["+key+"]", problem)
		}
	}
}

func checkCommandArgs(c *v1alpha1.CommandArgsOverrider, report problemReporter) {
	if len(c.Value) == 0 && c.ValueFrom == nil {
		report(".value", "it names no value")
	}
}

func checkDocument(f *v1alpha1.FieldOverrider, report problemReporter) {
	if _, err := parseAllowedPath(f.FieldPath, nil); err != nil {
		report(".fieldPath", err.Error())
	}
	if countDocumentFormats(f) != 1 {
		report("", "it has to have either json, yaml or mergePatch")
	}
	if f.MergePatch != nil {
		if _, err := parseDocumentMerge(f.MergePatch.Raw); err != nil {
			report(".mergePatch", err.Error())
		}
	}
	for name, list := range map[string][]v1alpha1.DocumentPatch{"json": f.JSON, "yaml": f.YAML} {
		for i, p := range list {
			if _, err := jsonpointer.ParsePointer(p.SubPath); err != nil {
				report(fmt.Sprintf(".%s[%d].subPath", name, i), err.Error())
			}
			if v, err := decodeDocumentValue(p); err != nil && p.ValueFrom == nil {
				report(fmt.Sprintf(".%s[%d].value", name, i), err.Error())
			} else if isDeeperThan(v, maxDepth) {
				report(fmt.Sprintf(".%s[%d].value", name, i), tooDeepReason)
			}
		}
	}
}

// countDocumentFormats returns how many of the fields are set of which a fieldOverrider has one.
func countDocumentFormats(f *v1alpha1.FieldOverrider) (n int) {
	for _, set := range []bool{len(f.JSON) > 0, len(f.YAML) > 0, f.MergePatch != nil} {
		if set {
			n++
		}
	}
	return n
}

func checkEnv(e *v1alpha1.EnvOverrider, report problemReporter) {
	for i, v := range e.Value {
		if strings.ContainsRune(v.Name, '=') {
			report(fmt.Sprintf(".value[%d].name", i), "the name of a variable has no =")
		}
		if e.Operator == v1alpha1.OverrideRemove && v.Value != "" {
			report(fmt.Sprintf(".value[%d].value", i), "operator remove takes no value")
		}
	}
}

// isRegistryValue reports whether the value is a registry, with or without the first part of a path.
func isRegistryValue(value string) bool {
	host, path, _ := strings.Cut(value, "/")
	return registryPattern.MatchString(host) && isRegistry(host) && (path == "" || repositoryPattern.MatchString(path))
}

func checkImageValue(o v1alpha1.ImageOverrider) string {
	if o.Operator == v1alpha1.OverrideRemove {
		if o.Component == v1alpha1.ImageRepository {
			return "an image without a repository is none: replace it instead"
		}
		return ""
	}
	if o.Value == "" {
		return fmt.Sprintf("operator %s needs a value", o.Operator)
	}
	if o.Operator == v1alpha1.OverrideAdd && o.Component != v1alpha1.ImageDigest {
		return ""
	}
	return checkImageComponentValue(o)
}

// checkImageComponentValue returns why the value cannot be a component of an image.
func checkImageComponentValue(o v1alpha1.ImageOverrider) string {
	for _, form := range imageForms {
		if form.component == o.Component && !form.matches(o.Value) {
			return fmt.Sprintf("%q is %s", o.Value, form.refusal)
		}
	}
	return ""
}

// imageForms are the forms of the values that replace a component of an image.
var imageForms = []struct {
	component v1alpha1.ImageComponent
	matches   func(value string) bool
	refusal   string
}{
	{v1alpha1.ImageDigest, digestPattern.MatchString, "not a digest"},
	{v1alpha1.ImageRegistry, isRegistryValue, "not a registry: it needs a host with a dot or a port, such as registry.example.com"},
	{v1alpha1.ImageRepository, repositoryPattern.MatchString, "not a repository"},
	{v1alpha1.ImageTag, func(value string) bool { return tagPattern.MatchString(value) || digestPattern.MatchString(value) }, "neither a tag nor a digest"},
}

// parseAllowedPath parses the path of a field, and refuses fields that overrides never change.
// value is the new value.
func parseAllowedPath(path string, value any) ([]string, error) {
	parts, err := jsonpointer.ParsePointer(path)
	if err != nil {
		return nil, err
	}
	switch parts[0] {
	case "apiVersion", "kind", "status", "":
		return nil, fmt.Errorf("overrides never touch %s", path)
	case "metadata":
		if len(parts) == 1 || parts[1] != "labels" && parts[1] != "annotations" {
			return nil, fmt.Errorf("overrides never touch %s: of metadata they change labels and annotations only", path)
		}
		keys := parts[2:]
		if m, ok := value.(map[string]any); ok && len(parts) == 2 {
			for k := range m {
				keys = append(keys, k)
			}
		}
		if slices.ContainsFunc(keys, userfields.IsHubKey) {
			return nil, fmt.Errorf("overrides never touch what is Atoll's own in %s", path)
		}
	}
	return parts, nil
}

func decodePatchValue(p v1alpha1.PlaintextOverrider) (any, error) {
	if p.Operator == v1alpha1.OverrideRemove {
		if p.Value != nil {
			return nil, fmt.Errorf("operator remove takes no value")
		}
		return nil, nil
	}
	if p.Value == nil || len(p.Value.Raw) == 0 {
		return nil, fmt.Errorf("operator %s needs a value", p.Operator)
	}
	var v any
	if err := json.Unmarshal(p.Value.Raw, &v); err != nil {
		return nil, fmt.Errorf("value is not JSON: %w", err)
	}
	return v, nil
}

// RequiresClusterOverridePolicy returns whether only a ClusterOverridePolicy may change the kind: RBAC,
// webhook configurations, admission policies and CRDs.
func RequiresClusterOverridePolicy(gk schema.GroupKind) bool {
	switch gk.Group {
	case "rbac.authorization.k8s.io", "admissionregistration.k8s.io":
		return true
	case "apiextensions.k8s.io":
		return gk.Kind == "CustomResourceDefinition"
	}
	return false
}

// ChangesSecretData returns whether the overriders change the data of Secrets, which only a
// ClusterOverridePolicy may change.
func ChangesSecretData(o v1alpha1.Overriders) bool { return hasTrait(&o, traitSecretData) }

// CanSetReplicas returns whether the overriders may change the number of replicas in a cluster. An
// overrider that excludes the object does.
func CanSetReplicas(o v1alpha1.Overriders) bool {
	return o.NotHere != nil && *o.NotHere || hasTrait(&o, traitReplicas)
}

func hasTrait(o *v1alpha1.Overriders, t overriderTrait) bool {
	return slices.ContainsFunc(listSteps(o), func(s overrideStep) bool { return s.has(t) })
}

// BuiltInOnlyOverriders returns the paths below overriders of those that apply only to kinds that
// Kubernetes itself serves.
func BuiltInOnlyOverriders(o v1alpha1.Overriders) (paths []string) {
	for _, s := range listSteps(&o) {
		if s.has(traitBuiltIn) {
			paths = append(paths, s.name)
		}
	}
	return paths
}

func isSecretDataField(field string) bool { return field == "data" || field == "stringData" }

func isSecretDataPath(path string) bool {
	parts, err := jsonpointer.ParsePointer(path)
	return err == nil && isSecretDataField(parts[0])
}

func patchesSecretData(patch *apiextensionsv1.JSON) bool {
	p, err := parseAllowedMergePatch(patch.Raw)
	return err != nil || slices.ContainsFunc(slices.Collect(maps.Keys(p)), isSecretDataField)
}

// patchesReplicas returns whether a merge patch sets spec.replicas, or replaces the spec around it.
func patchesReplicas(patch *apiextensionsv1.JSON) bool {
	p, err := parseAllowedMergePatch(patch.Raw)
	spec, there := p["spec"]
	m, isMap := spec.(map[string]any)
	_, sets := m["replicas"]
	_, whole := m["$patch"]
	_, retains := m["$retainKeys"]
	return err != nil || there && (!isMap || sets || whole || retains)
}

// protectedState is what no override changes in an object.
type protectedState struct {
	fields   [9]any // as protectedFields names them
	replicas any
}

// protectedFields are the fields that overrides never change, by their names in errors.
var protectedFields = [9]string{
	"apiVersion", "kind", "metadata/finalizers", "metadata/generateName", "metadata/name", "metadata/namespace",
	"metadata/ownerReferences", "metadata/uid", "status",
}

func (o *ObjectPatcher) captureProtected() protectedState {
	var s protectedState
	meta := userfields.ChildMap(o.Object, "metadata")
	for i, name := range protectedFields {
		if below, ok := strings.CutPrefix(name, "metadata/"); ok {
			s.fields[i] = meta[below]
		} else {
			s.fields[i] = o.Object[name]
		}
	}
	if path := o.placementReplicasPath(); path != nil {
		s.replicas, _ = kinds.LookupPath(o.Object, path)
	}
	return s
}

// checkProtected returns an error if any protected field differs from before, whichever overrider
// changed it.
func (o *ObjectPatcher) checkProtected(before protectedState) error {
	now := o.captureProtected()
	for i, name := range protectedFields {
		if !userfields.EqualJSON(before.fields[i], now.fields[i]) {
			return fmt.Errorf("overrides never touch /%s", name)
		}
	}
	meta := userfields.ChildMap(o.Object, "metadata")
	for _, field := range []string{"labels", "annotations"} {
		for key := range userfields.ChildMap(meta, field) {
			if userfields.IsHubKey(key) {
				return fmt.Errorf("overrides never touch what is Atoll's own in /metadata/%s", field)
			}
		}
	}
	if !userfields.EqualJSON(before.replicas, now.replicas) {
		return errReplicasDivided
	}
	return nil
}
