package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/interpret"
)

// Problem is what is wrong with one field.
type Problem struct {
	// Path of the field below what was checked, such as plaintext[0].path.
	Path   string
	Reason string
}

// CheckOverriders finds overriders that can never apply: patches and images that
// cannot be parsed, and fields that overrides never touch. It is what admission
// refuses; Render refuses the same.
func CheckOverriders(o v1alpha1.Overriders) []Problem {
	var out []Problem
	for _, s := range steps(&o) {
		out = append(out, check(s)...)
	}
	slices.SortStableFunc(out, func(a, b Problem) int { return strings.Compare(a.Path, b.Path) })
	return out
}

func check(s step) (out []Problem) {
	say := func(below, reason string) { out = append(out, Problem{Path: s.name + below, Reason: reason}) }
	checkSources(s, say)
	switch do := s.do; {
	case do.ImageOverrider != nil:
		if p := do.ImageOverrider.Predicate; p != nil {
			if _, err := allowed(p.Path, nil); err != nil {
				say(".predicate.path", err.Error())
			}
		}
		if reason := checkImageValue(*do.ImageOverrider); reason != "" && do.ImageOverrider.ValueFrom == nil {
			say(".value", reason)
		}
	case do.CommandOverrider != nil:
		checkWords(do.CommandOverrider, say)
	case do.ArgsOverrider != nil:
		checkWords(do.ArgsOverrider, say)
	case do.LabelsOverrider != nil:
		checkOwn(do.LabelsOverrider, say)
	case do.AnnotationsOverrider != nil:
		checkOwn(do.AnnotationsOverrider, say)
	case do.FieldOverrider != nil:
		checkDocument(do.FieldOverrider, say)
	case do.EnvOverrider != nil:
		checkEnv(do.EnvOverrider, say)
	case do.ResourcesOverrider != nil:
		if len(do.ResourcesOverrider.Requests)+len(do.ResourcesOverrider.Limits) == 0 {
			say("", "it names neither requests nor limits")
		}
	case do.MergePatch != nil:
		if _, err := parseMerge(do.MergePatch.Raw); err != nil {
			say("", err.Error())
		}
	case do.StrategicMerge != nil:
		if _, err := parseMerge(do.StrategicMerge.Raw); err != nil {
			say("", err.Error())
		}
	case do.Plaintext != nil:
		value, err := patchValue(*do.Plaintext)
		if err != nil && do.Plaintext.ValueFrom == nil {
			say(".value", err.Error())
		} else if deep(value, maxDepth) {
			say(".value", tooDeep)
		}
		if _, err := allowed(do.Plaintext.Path, value); err != nil {
			say(".path", err.Error())
		}
	}
	return out
}

func checkOwn(l *v1alpha1.LabelAnnotationOverrider, say func(below, reason string)) {
	for _, key := range sortedKeys(l.Value) {
		if own(key) {
			say(".value["+key+"]", "overrides never touch what is Atoll's own")
		}
	}
	for _, key := range sortedKeys(l.ValueFrom) {
		if own(key) {
			say(".valueFrom["+key+"]", "overrides never touch what is Atoll's own")
		}
	}
	if len(l.Value)+len(l.ValueFrom) == 0 {
		say(".value", "it names no key")
	}
}

func checkWords(c *v1alpha1.CommandArgsOverrider, say func(below, reason string)) {
	if len(c.Value) == 0 && c.ValueFrom == nil {
		say(".value", "it names no value")
	}
}

func checkDocument(f *v1alpha1.FieldOverrider, say func(below, reason string)) {
	if _, err := allowed(f.FieldPath, nil); err != nil {
		say(".fieldPath", err.Error())
	}
	if (len(f.JSON) > 0) == (len(f.YAML) > 0) {
		say("", "it has to have either json or yaml")
	}
	for name, list := range map[string][]v1alpha1.DocumentPatch{"json": f.JSON, "yaml": f.YAML} {
		for i, p := range list {
			if _, err := parsePointer(p.SubPath); err != nil {
				say(fmt.Sprintf(".%s[%d].subPath", name, i), err.Error())
			}
			if v, err := documentValue(p); err != nil && p.ValueFrom == nil {
				say(fmt.Sprintf(".%s[%d].value", name, i), err.Error())
			} else if deep(v, maxDepth) {
				say(fmt.Sprintf(".%s[%d].value", name, i), tooDeep)
			}
		}
	}
}

func checkEnv(e *v1alpha1.EnvOverrider, say func(below, reason string)) {
	for i, v := range e.Value {
		if strings.ContainsRune(v.Name, '=') {
			say(fmt.Sprintf(".value[%d].name", i), "the name of a variable has no =")
		}
		if e.Operator == v1alpha1.OverrideRemove && v.Value != "" {
			say(fmt.Sprintf(".value[%d].value", i), "operator remove takes no value")
		}
	}
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
	if o.Operator == v1alpha1.OverrideAdd {
		return ""
	}
	switch o.Component {
	case v1alpha1.ImageRegistry:
		host, path, _ := strings.Cut(o.Value, "/")
		if !registryForm.MatchString(host) || !isRegistry(host) || path != "" && !repositoryForm.MatchString(path) {
			return fmt.Sprintf("%q is not a registry: it needs a host with a dot or a port, such as registry.example.com", o.Value)
		}
	case v1alpha1.ImageRepository:
		if !repositoryForm.MatchString(o.Value) {
			return fmt.Sprintf("%q is not a repository", o.Value)
		}
	case v1alpha1.ImageTag:
		if !tagForm.MatchString(o.Value) && !digestForm.MatchString(o.Value) {
			return fmt.Sprintf("%q is neither a tag nor a digest", o.Value)
		}
	}
	return ""
}

// allowed parses the path of a field and refuses the fields that overrides never
// touch. value is what will stand there.
func allowed(path string, value any) ([]string, error) {
	parts, err := parsePointer(path)
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
		if slices.ContainsFunc(keys, own) {
			return nil, fmt.Errorf("overrides never touch what is Atoll's own in %s", path)
		}
	}
	return parts, nil
}

func patchValue(p v1alpha1.PlaintextOverrider) (any, error) {
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

// ClusterOnly tells of kinds that only a ClusterOverridePolicy may touch: RBAC,
// webhook configurations and admission policies, CRDs.
func ClusterOnly(gk schema.GroupKind) bool {
	switch gk.Group {
	case "rbac.authorization.k8s.io", "admissionregistration.k8s.io":
		return true
	case "apiextensions.k8s.io":
		return gk.Kind == "CustomResourceDefinition"
	}
	return false
}

// TouchesData tells whether the overriders change the data of Secrets, which only
// a ClusterOverridePolicy may.
func TouchesData(o v1alpha1.Overriders) bool {
	data := func(field string) bool { return field == "data" || field == "stringData" }
	at := func(path string) bool {
		parts, err := parsePointer(path)
		return err == nil && data(parts[0])
	}
	merges := func(raw []byte) bool {
		p, err := parseMerge(raw)
		return err != nil || slices.ContainsFunc(slices.Collect(maps.Keys(p)), data)
	}
	return slices.ContainsFunc(steps(&o), func(s step) bool {
		switch do := s.do; {
		case do.ImageOverrider != nil:
			return do.ImageOverrider.Predicate != nil && at(do.ImageOverrider.Predicate.Path)
		case do.FieldOverrider != nil:
			return at(do.FieldOverrider.FieldPath)
		case do.MergePatch != nil:
			return merges(do.MergePatch.Raw)
		case do.StrategicMerge != nil:
			return merges(do.StrategicMerge.Raw)
		case do.Plaintext != nil:
			return at(do.Plaintext.Path)
		}
		return false
	})
}

// SetsReplicas tells whether the overriders may change how many replicas a workload has
// in a cluster, none by keeping it out among it.
func SetsReplicas(o v1alpha1.Overriders) bool {
	merges := func(raw []byte) bool {
		p, err := parseMerge(raw)
		spec, there := p["spec"]
		m, isMap := spec.(map[string]any)
		_, sets := m["replicas"]
		_, whole := m["$patch"]
		_, retains := m["$retainKeys"]
		return err != nil || there && (!isMap || sets || whole || retains)
	}
	if o.NotHere != nil && *o.NotHere {
		return true
	}
	return slices.ContainsFunc(steps(&o), func(s step) bool {
		switch do := s.do; {
		case do.Replicas != nil:
			return true
		case do.MergePatch != nil:
			return merges(do.MergePatch.Raw)
		case do.StrategicMerge != nil:
			return merges(do.StrategicMerge.Raw)
		case do.Plaintext != nil:
			return do.Plaintext.Path == "/spec" || do.Plaintext.Path == "/spec/replicas"
		}
		return false
	})
}

// standing is what no override changes of an object.
type standing struct {
	fields   [9]any // as heldFields names them
	replicas any
}

// heldFields are those that overrides never touch, by their names in errors.
var heldFields = [9]string{
	"apiVersion", "kind", "metadata/finalizers", "metadata/generateName", "metadata/name", "metadata/namespace",
	"metadata/ownerReferences", "metadata/uid", "status",
}

func (o *overriding) stand() standing {
	var s standing
	meta := child(o.obj, "metadata")
	for i, name := range heldFields {
		if below, ok := strings.CutPrefix(name, "metadata/"); ok {
			s.fields[i] = meta[below]
		} else {
			s.fields[i] = o.obj[name]
		}
	}
	if path := o.dividedReplicas(); path != nil {
		s.replicas, _ = interpret.Lookup(o.obj, path)
	}
	return s
}

// dividedReplicas is where the object has the replicas that are the placement's alone;
// nil: nowhere.
func (o *overriding) dividedReplicas() []string {
	switch {
	case !o.shared():
		return nil
	case o.scripted != nil:
		return o.scripted
	}
	return replicasPath(o.obj)
}

// kept makes sure, whatever the overrider was, that what no override changes is as it
// was.
func (o *overriding) kept(before standing) error {
	now := o.stand()
	for i, name := range heldFields {
		if !equal(before.fields[i], now.fields[i]) {
			return fmt.Errorf("overrides never touch /%s", name)
		}
	}
	meta := child(o.obj, "metadata")
	for _, field := range []string{"labels", "annotations"} {
		for key := range child(meta, field) {
			if own(key) {
				return fmt.Errorf("overrides never touch what is Atoll's own in /metadata/%s", field)
			}
		}
	}
	if !equal(before.replicas, now.replicas) {
		return errDivided
	}
	return nil
}
