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

var customizationGVK = karmada.GroupVersion.WithKind(karmada.CustomizationKind)

// luaScript is the form of every answer in a customization.
type luaScript struct {
	LuaScript string `json:"luaScript"`
}

// karmadaField is a field of a customization that answers a question.
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

// karmadaFieldPaths maps the paths of a ResourceInterpreter's fields to the paths in a
// customization.
var karmadaFieldPaths = func() map[string]string {
	out, names := map[string]string{"spec.target.kinds": "spec.target.kind"}, map[question]string{}
	for _, f := range karmadaFields(&karmada.CustomizationRules{}) {
		names[f.q] = "spec.customizations." + f.name
	}
	for _, f := range ruleFieldsOf(&v1alpha1.ResourceInterpreterSpec{}) {
		out["spec."+f.name], out["spec."+f.name+".lua"] = names[f.q], names[f.q]+".luaScript"
	}
	return out
}()

// specFromKarmada returns the spec of a ResourceInterpreter with the same scripts.
func specFromKarmada(in *karmada.ResourceInterpreterCustomizationSpec) v1alpha1.ResourceInterpreterSpec {
	out := v1alpha1.ResourceInterpreterSpec{Target: v1alpha1.InterpreterTarget{APIVersion: in.Target.APIVersion, Kinds: []string{in.Target.Kind}}}
	scripts := map[question]*luaScript{}
	for _, f := range karmadaFields(&in.Customizations) {
		scripts[f.q] = f.script
	}
	for _, f := range ruleFieldsOf(&out) {
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
	return compileSpecWithFieldNames(place, specFromKarmada(in), karmadaFieldPaths)
}

// CheckKarmada is CheckSpec for Karmada's customizations. Its errors name the fields of the
// customization.
func CheckKarmada(in karmada.ResourceInterpreterCustomizationSpec) []*Error {
	_, err := compileKarmada("", &in)
	return splitErrors(err)
}

var errNameTaken = errors.New("a ResourceInterpreter of this name is there that is not made of it: it has no effect until that is deleted")

// FromKarmada returns the ResourceInterpreter for a customization of Karmada. It has the same
// name, and the customization is its controller, so that it is deleted with the customization.
// now is the present ResourceInterpreter of that name, or nil; its other fields are kept. The
// error means that now was not made from this customization and must not be changed.
func FromKarmada(c *karmada.ResourceInterpreterCustomization, now *v1alpha1.ResourceInterpreter) (*v1alpha1.ResourceInterpreter, error) {
	spec := specFromKarmada(&c.Spec)
	out := newInterpreterObject(c.Name, spec.Target)
	if now != nil {
		if KarmadaSourceName(now) != c.Name {
			return nil, errNameTaken
		}
		out = now.DeepCopy()
	}
	out.Spec = spec
	metav1.SetMetaDataLabel(&out.ObjectMeta, atoll.LabelDialect, "karmada")
	others := slices.DeleteFunc(out.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Controller != nil && *o.Controller })
	out.OwnerReferences = append(others, *metav1.NewControllerRef(c, customizationGVK))
	return out, nil
}

// KarmadaSourceName returns the name of the Karmada customization that the interpreter was
// made from; empty where there is none.
func KarmadaSourceName(i *v1alpha1.ResourceInterpreter) string {
	c := metav1.GetControllerOfNoCopy(i)
	if c == nil || schema.FromAPIVersionAndKind(c.APIVersion, c.Kind).GroupKind() != customizationGVK.GroupKind() {
		return ""
	}
	return c.Name
}
