package script

import (
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	karmada "atoll.dev/atoll/api/karmada/config/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

var customization = karmada.GroupVersion.WithKind(karmada.CustomizationKind)

// luaScript is what every answer of a customization is.
type luaScript struct {
	LuaScript string `json:"luaScript"`
}

// karmadaField of a customization that answers a question.
type karmadaField struct {
	name   string
	q      question
	script *luaScript
}

func karmadaFields(c *karmada.CustomizationRules) []karmadaField {
	return []karmadaField{
		{"replicaResource", qReplicas, (*luaScript)(c.ReplicaResource)}, {"componentResource", qComponents, (*luaScript)(c.ComponentResource)},
		{"replicaRevision", qRevise, (*luaScript)(c.ReplicaRevision)}, {"retention", qRetain, (*luaScript)(c.Retention)},
		{"healthInterpretation", qHealth, (*luaScript)(c.HealthInterpretation)}, {"statusReflection", qStatus, (*luaScript)(c.StatusReflection)},
		{"statusAggregation", qAggregate, (*luaScript)(c.StatusAggregation)}, {"dependencyInterpretation", qDependencies, (*luaScript)(c.DependencyInterpretation)},
	}
}

// karmadaWords are the paths of a ResourceInterpreter's fields in a customization.
var karmadaWords = func() map[string]string {
	out, names := map[string]string{"spec.target.kinds": "spec.target.kind"}, map[question]string{}
	for _, f := range karmadaFields(&karmada.CustomizationRules{}) {
		names[f.q] = "spec.customizations." + f.name
	}
	for _, f := range rulesOf(&v1alpha1.ResourceInterpreterSpec{}) {
		out["spec."+f.name], out["spec."+f.name+".lua"] = names[f.q], names[f.q]+".luaScript"
	}
	return out
}()

// fromKarmada is a spec that says what the customization says.
func fromKarmada(in *karmada.ResourceInterpreterCustomizationSpec) v1alpha1.ResourceInterpreterSpec {
	out := v1alpha1.ResourceInterpreterSpec{Target: v1alpha1.InterpreterTarget{APIVersion: in.Target.APIVersion, Kinds: []string{in.Target.Kind}}}
	scripts := map[question]*luaScript{}
	for _, f := range karmadaFields(&in.Customizations) {
		scripts[f.q] = f.script
	}
	for _, f := range rulesOf(&out) {
		if s := scripts[f.q]; s != nil {
			*f.rule = &v1alpha1.InterpreterRule{Lua: s.LuaScript}
		}
	}
	return out
}

func compileKarmada(place string, in *karmada.ResourceInterpreterCustomizationSpec) (*Customization, error) {
	if in.Target.APIVersion == "" {
		return nil, &Error{Script: place + ": spec.target.apiVersion", Why: "name the group and version that is meant"}
	}
	return compile(place, fromKarmada(in), karmadaWords)
}

// CheckKarmada tells all that is wrong with a customization of Karmada's, as Check does, by
// the names of its own fields.
func CheckKarmada(in karmada.ResourceInterpreterCustomizationSpec) []*Error {
	_, err := compileKarmada("", &in)
	return faults(err)
}

var errTaken = errors.New("a ResourceInterpreter of this name is there that is not made of it: it has no effect until that is deleted")

// FromKarmada gives the ResourceInterpreter that a customization of Karmada's is to have: of
// the same name, controlled by it, so that it goes when the customization goes. now is the
// one of that name that there is, nil where there is none: what is not said of it stays. One
// that is not made of the customization is nobody's to change: that is the error.
func FromKarmada(c *karmada.ResourceInterpreterCustomization, now *v1alpha1.ResourceInterpreter) (*v1alpha1.ResourceInterpreter, error) {
	spec := fromKarmada(&c.Spec)
	out := made(c.Name, spec.Target)
	if now != nil {
		if MadeOf(now) != c.Name {
			return nil, errTaken
		}
		out = now.DeepCopy()
	}
	out.Spec = spec
	metav1.SetMetaDataLabel(&out.ObjectMeta, atoll.LabelDialect, "karmada")
	others := slices.DeleteFunc(out.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Controller != nil && *o.Controller })
	out.OwnerReferences = append(others, *metav1.NewControllerRef(c, customization))
	return out, nil
}

// MadeOf names the customization of Karmada's that the interpreter is made of; empty where
// it is made of none.
func MadeOf(i *v1alpha1.ResourceInterpreter) string {
	c := metav1.GetControllerOfNoCopy(i)
	if c == nil || schema.FromAPIVersionAndKind(c.APIVersion, c.Kind).GroupKind() != customization.GroupKind() {
		return ""
	}
	return c.Name
}
