package overrides

import (
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"atoll.dev/atoll/api/v1alpha1"
)

// overriderTypes lists all override types in the order of their application. An entry, and a field
// of its name in v1alpha1.Overriders and v1alpha1.OrderedOverrider, add a type.
var overriderTypes = []overriderType{
	&overriderSpec[v1alpha1.ImageOverrider]{
		name:  "imageOverrider",
		list:  func(o *v1alpha1.Overriders) []v1alpha1.ImageOverrider { return o.ImageOverrider },
		field: func(o *v1alpha1.OrderedOverrider) **v1alpha1.ImageOverrider { return &o.ImageOverrider },
		apply: (*ObjectPatcher).overrideImages,
		check: checkImage,
		sources: func(im *v1alpha1.ImageOverrider) []valueSource {
			return singleSource(im.ValueFrom, im.Value != "")
		},
		resolve:   ClusterValues.resolveImage,
		unknown:   unknownImagePart,
		fields:    listFieldsNamedByImage,
		isRemoval: func(im *v1alpha1.ImageOverrider) bool { return im.Operator == v1alpha1.OverrideRemove },
		canChangeSecretData: func(im *v1alpha1.ImageOverrider) bool {
			return im.Predicate != nil && isSecretDataPath(im.Predicate.Path)
		},
	},
	newCommandArgsType("commandOverrider", "command",
		func(o *v1alpha1.Overriders) []v1alpha1.CommandArgsOverrider { return o.CommandOverrider },
		func(o *v1alpha1.OrderedOverrider) **v1alpha1.CommandArgsOverrider { return &o.CommandOverrider }),
	newCommandArgsType("argsOverrider", "args",
		func(o *v1alpha1.Overriders) []v1alpha1.CommandArgsOverrider { return o.ArgsOverrider },
		func(o *v1alpha1.OrderedOverrider) **v1alpha1.CommandArgsOverrider { return &o.ArgsOverrider }),
	newKeysType("labelsOverrider", "labels", validation.IsValidLabelValue,
		func(o *v1alpha1.Overriders) []v1alpha1.LabelAnnotationOverrider { return o.LabelsOverrider },
		func(o *v1alpha1.OrderedOverrider) **v1alpha1.LabelAnnotationOverrider { return &o.LabelsOverrider }),
	newKeysType("annotationsOverrider", "annotations", nil,
		func(o *v1alpha1.Overriders) []v1alpha1.LabelAnnotationOverrider { return o.AnnotationsOverrider },
		func(o *v1alpha1.OrderedOverrider) **v1alpha1.LabelAnnotationOverrider {
			return &o.AnnotationsOverrider
		}),
	&overriderSpec[v1alpha1.FieldOverrider]{
		name:                "fieldOverrider",
		list:                func(o *v1alpha1.Overriders) []v1alpha1.FieldOverrider { return o.FieldOverrider },
		field:               func(o *v1alpha1.OrderedOverrider) **v1alpha1.FieldOverrider { return &o.FieldOverrider },
		apply:               (*ObjectPatcher).overrideDocument,
		check:               checkDocument,
		sources:             documentSources,
		resolve:             ClusterValues.resolveField,
		unknown:             unknownDocumentPart,
		fields:              func(f *v1alpha1.FieldOverrider) []namedField { return namedPath(".fieldPath", f.FieldPath, nil) },
		canChangeSecretData: func(f *v1alpha1.FieldOverrider) bool { return isSecretDataPath(f.FieldPath) },
	},
	&overriderSpec[v1alpha1.EnvOverrider]{
		name:      "envOverrider",
		list:      func(o *v1alpha1.Overriders) []v1alpha1.EnvOverrider { return o.EnvOverrider },
		field:     func(o *v1alpha1.OrderedOverrider) **v1alpha1.EnvOverrider { return &o.EnvOverrider },
		apply:     (*ObjectPatcher).overrideEnv,
		check:     checkEnv,
		sources:   envSources,
		resolve:   ClusterValues.resolveEnv,
		unknown:   func(e *v1alpha1.EnvOverrider) string { return describeUnknownOperator(e.Operator, keyOperators) },
		isRemoval: func(e *v1alpha1.EnvOverrider) bool { return e.Operator == v1alpha1.OverrideRemove },
	},
	&overriderSpec[v1alpha1.ResourcesOverrider]{
		name:  "resourcesOverrider",
		list:  func(o *v1alpha1.Overriders) []v1alpha1.ResourcesOverrider { return o.ResourcesOverrider },
		field: func(o *v1alpha1.OrderedOverrider) **v1alpha1.ResourcesOverrider { return &o.ResourcesOverrider },
		apply: (*ObjectPatcher).overrideResources,
		check: checkResources,
		unknown: func(r *v1alpha1.ResourcesOverrider) string {
			return describeUnknownOperator(r.Operator, keyOperators)
		},
	},
	&overriderSpec[int32]{
		name:           "replicas",
		single:         func(o *v1alpha1.Overriders) *int32 { return o.Replicas },
		field:          func(o *v1alpha1.OrderedOverrider) **int32 { return &o.Replicas },
		apply:          (*ObjectPatcher).overrideReplicas,
		canSetReplicas: func(*int32) bool { return true },
	},
	&overriderSpec[apiextensionsv1.JSON]{
		name:                "mergePatch",
		single:              func(o *v1alpha1.Overriders) *apiextensionsv1.JSON { return o.MergePatch },
		field:               func(o *v1alpha1.OrderedOverrider) **apiextensionsv1.JSON { return &o.MergePatch },
		apply:               (*ObjectPatcher).applyMergePatch,
		check:               checkMergePatch,
		fields:              listFieldsNamedByMerge,
		canChangeSecretData: patchesSecretData,
		canSetReplicas:      patchesReplicas,
	},
	&overriderSpec[apiextensionsv1.JSON]{
		name:                "strategicMerge",
		single:              func(o *v1alpha1.Overriders) *apiextensionsv1.JSON { return o.StrategicMerge },
		field:               func(o *v1alpha1.OrderedOverrider) **apiextensionsv1.JSON { return &o.StrategicMerge },
		apply:               (*ObjectPatcher).applyStrategicMerge,
		check:               checkMergePatch,
		fields:              listFieldsNamedByMerge,
		canChangeSecretData: patchesSecretData,
		canSetReplicas:      patchesReplicas,
		builtInOnly:         true,
	},
	&overriderSpec[v1alpha1.PlaintextOverrider]{
		name:  "plaintext",
		list:  func(o *v1alpha1.Overriders) []v1alpha1.PlaintextOverrider { return o.Plaintext },
		field: func(o *v1alpha1.OrderedOverrider) **v1alpha1.PlaintextOverrider { return &o.Plaintext },
		apply: (*ObjectPatcher).applyPlaintext,
		check: checkPlaintext,
		sources: func(p *v1alpha1.PlaintextOverrider) []valueSource {
			return singleSource(p.ValueFrom, p.Value != nil)
		},
		resolve: ClusterValues.resolvePlaintext,
		unknown: func(p *v1alpha1.PlaintextOverrider) string {
			return describeUnknownOperator(p.Operator, plaintextOperators)
		},
		isRemoval:           func(p *v1alpha1.PlaintextOverrider) bool { return p.Operator == v1alpha1.OverrideRemove },
		fields:              listFieldsNamedByPlaintext,
		canChangeSecretData: touchesSecretData,
		canSetReplicas:      setsReplicas,
		describe:            describePlaintext,
	},
}

func newCommandArgsType(name, container string, list func(*v1alpha1.Overriders) []v1alpha1.CommandArgsOverrider,
	field func(*v1alpha1.OrderedOverrider) **v1alpha1.CommandArgsOverrider) overriderType {
	return &overriderSpec[v1alpha1.CommandArgsOverrider]{
		name: name, list: list, field: field, check: checkCommandArgs,
		apply: func(o *ObjectPatcher, c *v1alpha1.CommandArgsOverrider) error {
			return o.overrideCommandArgs(container, c)
		},
		sources: func(c *v1alpha1.CommandArgsOverrider) []valueSource { return singleSource(c.ValueFrom, false) },
		resolve: ClusterValues.resolveCommandArgs,
		unknown: func(c *v1alpha1.CommandArgsOverrider) string {
			return describeUnknownOperator(c.Operator, listOperators)
		},
	}
}

// newKeysType returns the type that changes labels or annotations. validate returns what is wrong
// with a value; nil accepts any value.
func newKeysType(name, metadata string, validate func(string) []string, list func(*v1alpha1.Overriders) []v1alpha1.LabelAnnotationOverrider,
	field func(*v1alpha1.OrderedOverrider) **v1alpha1.LabelAnnotationOverrider) overriderType {
	return &overriderSpec[v1alpha1.LabelAnnotationOverrider]{
		name: name, list: list, field: field, check: checkKeys, sources: keySources,
		apply: func(o *ObjectPatcher, l *v1alpha1.LabelAnnotationOverrider) error {
			return o.overrideKeys(metadata, l)
		},
		resolve: func(v ClusterValues, l *v1alpha1.LabelAnnotationOverrider) error {
			return v.resolveKeys(l, validate)
		},
		written: func(l *v1alpha1.LabelAnnotationOverrider, report problemReporter) {
			checkKeySyntax(l, validate, report)
		},
		unknown: func(l *v1alpha1.LabelAnnotationOverrider) string {
			return describeUnknownOperator(l.Operator, keyOperators)
		},
		isRemoval: func(l *v1alpha1.LabelAnnotationOverrider) bool { return l.Operator == v1alpha1.OverrideRemove },
	}
}

// overriderType is what the package needs of an override type. Methods that take an overrider expect
// one of their type.
type overriderType interface {
	// typeName returns the name of the field in Overriders and OrderedOverrider.
	typeName() string
	// appendSteps appends the steps of the rule's overriders of the type.
	appendSteps(out []overrideStep, o *v1alpha1.Overriders) []overrideStep
	isSet(do *v1alpha1.OrderedOverrider) bool
	applyTo(o *ObjectPatcher, do *v1alpha1.OrderedOverrider) error
	// checkStored reports why the overrider can never apply.
	checkStored(do *v1alpha1.OrderedOverrider, report problemReporter)
	// checkWritten reports what admission refuses, and what stored overriders may still have.
	checkWritten(do *v1alpha1.OrderedOverrider, report problemReporter)
	listSources(do *v1alpha1.OrderedOverrider) []valueSource
	// resolveValues replaces the overrider by a copy with the cluster's values in place of its sources.
	resolveValues(v ClusterValues, do *v1alpha1.OrderedOverrider) error
	// listNamedFields returns the fields of objects that the overrider names.
	listNamedFields(do *v1alpha1.OrderedOverrider) []namedField
	// unknownPart returns the part of the overrider that only a newer hub supports; empty: there is none.
	unknownPart(do *v1alpha1.OrderedOverrider) string
	// has returns whether the overrider has the trait.
	has(t overriderTrait, do *v1alpha1.OrderedOverrider) bool
	describeOverrider(do *v1alpha1.OrderedOverrider) string
}

// overriderTrait is a property that an overrider may have.
type overriderTrait int

const (
	// traitRemoval takes something away, and takes no value.
	traitRemoval overriderTrait = iota
	// traitSecretData may read or change the data of a Secret.
	traitSecretData
	// traitReplicas may change the number of replicas.
	traitReplicas
	// traitBuiltIn applies to kinds of Kubernetes alone.
	traitBuiltIn
)

// problemReporter takes the path of a field below an overrider, and what is wrong with it.
type problemReporter func(below, reason string)

// overriderSpec describes an override type whose overriders are of type T. All functions but field,
// apply, and one of list and single may be nil.
type overriderSpec[T any] struct {
	name string
	// list returns the overriders of a rule; single the one of a type that a rule has once.
	list   func(*v1alpha1.Overriders) []T
	single func(*v1alpha1.Overriders) *T
	field  func(*v1alpha1.OrderedOverrider) **T

	apply   func(*ObjectPatcher, *T) error
	check   func(*T, problemReporter)
	written func(*T, problemReporter)
	sources func(*T) []valueSource
	// resolve changes a copy.
	resolve func(ClusterValues, *T) error
	// fields returns the fields of objects that an overrider names; nil: it names none.
	fields func(*T) []namedField
	// unknown returns the part of an overrider that this hub does not support; nil: there can be none.
	unknown func(*T) string

	isRemoval, canChangeSecretData, canSetReplicas func(*T) bool

	builtInOnly bool
	describe    func(*T) string
}

func (s *overriderSpec[T]) typeName() string { return s.name }

func (s *overriderSpec[T]) appendSteps(out []overrideStep, o *v1alpha1.Overriders) []overrideStep {
	if s.list == nil {
		if one := s.single(o); one != nil {
			out = append(out, s.newStep(s.name, one))
		}
		return out
	}
	all := s.list(o)
	for i := range all {
		out = append(out, s.newStep(fmt.Sprintf("%s[%d]", s.name, i), &all[i]))
	}
	return out
}

func (s *overriderSpec[T]) newStep(name string, one *T) overrideStep {
	step := overrideStep{name: name, kind: s}
	*s.field(&step.overrider) = one
	step.usesValues = len(s.listSources(&step.overrider)) > 0
	return step
}

func (s *overriderSpec[T]) isSet(do *v1alpha1.OrderedOverrider) bool { return *s.field(do) != nil }

func (s *overriderSpec[T]) applyTo(o *ObjectPatcher, do *v1alpha1.OrderedOverrider) error {
	return s.apply(o, *s.field(do))
}

func (s *overriderSpec[T]) checkStored(do *v1alpha1.OrderedOverrider, report problemReporter) {
	if s.check != nil {
		s.check(*s.field(do), report)
	}
}

func (s *overriderSpec[T]) checkWritten(do *v1alpha1.OrderedOverrider, report problemReporter) {
	if s.written != nil {
		s.written(*s.field(do), report)
	}
}

func (s *overriderSpec[T]) listSources(do *v1alpha1.OrderedOverrider) []valueSource {
	if s.sources == nil {
		return nil
	}
	return s.sources(*s.field(do))
}

func (s *overriderSpec[T]) resolveValues(v ClusterValues, do *v1alpha1.OrderedOverrider) error {
	at := s.field(do)
	resolved := **at
	*at = &resolved
	return s.resolve(v, &resolved)
}

func (s *overriderSpec[T]) listNamedFields(do *v1alpha1.OrderedOverrider) []namedField {
	if s.fields == nil {
		return nil
	}
	return s.fields(*s.field(do))
}

func (s *overriderSpec[T]) unknownPart(do *v1alpha1.OrderedOverrider) string {
	if s.unknown == nil {
		return ""
	}
	return s.unknown(*s.field(do))
}

func (s *overriderSpec[T]) has(t overriderTrait, do *v1alpha1.OrderedOverrider) bool {
	var has func(*T) bool
	switch t {
	case traitRemoval:
		has = s.isRemoval
	case traitSecretData:
		has = s.canChangeSecretData
	case traitReplicas:
		has = s.canSetReplicas
	case traitBuiltIn:
		return s.builtInOnly
	}
	return has != nil && has(*s.field(do))
}

func (s *overriderSpec[T]) describeOverrider(do *v1alpha1.OrderedOverrider) string {
	if s.describe == nil {
		return ""
	}
	return " " + s.describe(*s.field(do))
}

// overrideStep is one overrider, and how its rule names it.
type overrideStep struct {
	name      string
	kind      overriderType // nil: of a newer hub
	overrider v1alpha1.OrderedOverrider
	// usesValues of the cluster.
	usesValues bool
}

// String names the step in an error.
func (s overrideStep) String() string {
	if s.kind == nil {
		return s.name
	}
	return s.name + s.kind.describeOverrider(&s.overrider)
}

// has returns whether the step's overrider has the trait.
func (s overrideStep) has(t overriderTrait) bool { return s.kind != nil && s.kind.has(t, &s.overrider) }

// listSteps returns the overriders of a rule in the order of their application.
func listSteps(o *v1alpha1.Overriders) (out []overrideStep) {
	for _, t := range overriderTypes {
		out = t.appendSteps(out, o)
	}
	for i := range o.Ordered {
		step := overrideStep{name: fmt.Sprintf("ordered[%d].nothing", i), overrider: o.Ordered[i]}
		if j := slices.IndexFunc(overriderTypes, func(t overriderType) bool { return t.isSet(&o.Ordered[i]) }); j >= 0 {
			step.kind = overriderTypes[j]
			step.name = fmt.Sprintf("ordered[%d].%s", i, step.kind.typeName())
			step.usesValues = len(step.kind.listSources(&step.overrider)) > 0
		}
		out = append(out, step)
	}
	return out
}
