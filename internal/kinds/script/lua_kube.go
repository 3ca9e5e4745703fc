package script

import (
	"fmt"

	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/quantity"
)

// kubeLibrary is the library of Karmada that require("kube") returns.
var kubeLibrary = newFunctionLibrary(map[string]lua.LGFunction{
	"accuratePodRequirements": kubePodRequirements, "getPodDependencies": kubePodDependencies, "getResourceQuantity": kubeQuantity,
	"resourceAdd": kubeResourceAdd,
})

// The cost of reading a pod, and each value in it, which may be a quantity.
const (
	kubeSteps      = 1000
	kubeBytes      = 16 << 10
	kubeValueSteps = 30
	kubeValueBytes = 512
	quantitySteps  = 100
	quantityBytes  = 2 << 10
)

func kubeQuantity(L *lua.LState) int {
	s := stringArg(L, 1)
	chargeCost(L, quantitySteps, quantityBytes)
	q, err := quantity.Parse(s)
	if err != nil {
		L.RaiseError("kube.getResourceQuantity(%q): it is no quantity", phrase.CutText(s, 64))
	}
	return pushNumber(L, q.AsApproximateFloat64())
}

// kubeResourceAdd returns the sum of its arguments as a quantity. nil counts as none.
func kubeResourceAdd(L *lua.LState) int {
	var sum resource.Quantity
	for i := 1; i <= L.GetTop(); i++ {
		if L.Get(i) == lua.LNil {
			continue
		}
		s := stringArg(L, i)
		chargeCost(L, quantitySteps, quantityBytes)
		q, err := quantity.Parse(s)
		if err != nil {
			L.RaiseError("kube.resourceAdd: argument %d, %q, is no quantity", i, phrase.TruncateText(s, 64))
		}
		sum.Add(q)
	}
	return pushString(L, sum.String())
}

// podArg returns argument i, which must be a pod or a pod template.
func podArg(L *lua.LState, i int) map[string]any {
	chargeCost(L, kubeSteps, kubeBytes)
	like := map[string]any{"spec": map[string]any{}} // which may be empty
	ex := &luaExporter{m: meterOf(L)}
	v, err := ex.exportValue(tableArg(L, i), like, 0)
	chargeCost(L, ex.exportedValues*kubeValueSteps, ex.exportedValues*kubeValueBytes)
	pod, ok := v.(map[string]any)
	if err == nil && ok && pod["spec"] != nil {
		return pod
	}
	if err == nil {
		err = fmt.Errorf("it has no spec")
	}
	L.RaiseError("argument %d is no pod template: %v", i, err)
	return nil
}

func (c *luaImporter) pushValue(v any) int {
	made, err := c.importValue(v, 0)
	if err != nil {
		c.L.RaiseError("%v", err)
	}
	c.L.Push(made)
	return 1
}

func newLuaImporter(L *lua.LState) *luaImporter { return &luaImporter{L: L, m: meterOf(L)} }

func kubePodRequirements(L *lua.LState) int {
	out, err := podRequirements(podArg(L, 1))
	if err != nil {
		L.RaiseError("kube.accuratePodRequirements: %v", err)
	}
	if out == nil {
		L.Push(lua.LNil)
		return 1
	}
	return newLuaImporter(L).pushValue(out)
}

// podRequirements returns what a pod template requires, in Karmada's terms; nil where it states
// nothing.
func podRequirements(template map[string]any) (map[string]any, error) {
	fields, ok := template["spec"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the pod template has no spec")
	}
	var spec corev1.PodSpec
	if bad := quantity.FindSlowToParseQuantity(fields); bad != "" {
		return nil, fmt.Errorf("the pod template has the quantity %q, which is too long or whose exponent is too large", bad)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &spec); err != nil {
		return nil, fmt.Errorf("the pod template cannot be read: %w", err)
	}
	out := map[string]any{}
	if requests := podRequestTexts(&spec); len(requests) > 0 {
		out["resourceRequest"] = requests
	}
	if claim := nodeConstraintsOf(fields); len(claim) > 0 {
		out["nodeClaim"] = claim
	}
	if spec.PriorityClassName != "" {
		out["priorityClassName"] = spec.PriorityClassName
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

func podRequestTexts(spec *corev1.PodSpec) map[string]any {
	out := map[string]any{}
	for name, n := range kinds.PodRequests(spec) {
		q := resource.NewQuantity(n, resource.BinarySI)
		if name == corev1.ResourceCPU {
			q = resource.NewMilliQuantity(n, resource.DecimalSI)
		}
		out[string(name)] = q.String()
	}
	return out
}

func nodeConstraintsOf(podSpec map[string]any) map[string]any {
	out := map[string]any{}
	for _, name := range []string{"nodeSelector", "tolerations"} {
		if v, there := podSpec[name]; there {
			out[name] = v
		}
	}
	if v, ok, _ := unstructured.NestedFieldNoCopy(podSpec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"); ok {
		out["hardNodeAffinity"] = v
	}
	return out
}

func kubePodDependencies(L *lua.LState) int {
	template, namespace := podArg(L, 1), ""
	if L.Get(2) != lua.LNil {
		namespace = stringArg(L, 2)
	}
	spec, _ := template["spec"].(map[string]any)
	list := []any{}
	for _, key := range kinds.PodDependencies(spec, namespace) {
		list = append(list, map[string]any{"apiVersion": "v1", "kind": key.Kind, "namespace": namespace, "name": key.Name})
	}
	return newLuaImporter(L).pushValue(list)
}
