package script

import (
	"fmt"

	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
)

// kubeLibrary is Karmada's, which require("kube") gives.
var kubeLibrary = libraryOf(map[string]lua.LGFunction{
	"accuratePodRequirements": kubePodRequirements, "getPodDependencies": kubePodDependencies, "getResourceQuantity": kubeQuantity,
})

// What reading a pod costs, and each value in it, which may be a quantity.
const (
	kubeSteps      = 1000
	kubeBytes      = 16 << 10
	kubeValueSteps = 30
	kubeValueBytes = 512
	quantitySteps  = 100
	quantityBytes  = 2 << 10
)

func kubeQuantity(L *lua.LState) int {
	s := textArg(L, 1)
	charge(L, quantitySteps, quantityBytes)
	q, err := atoll.ParseQuantity(s)
	if err != nil {
		L.RaiseError("kube.getResourceQuantity(%q): it is no quantity", cut(s, 64))
	}
	return push(L, q.AsApproximateFloat64())
}

// podArg is a pod or a pod template.
func podArg(L *lua.LState, i int) map[string]any {
	charge(L, kubeSteps, kubeBytes)
	like := map[string]any{"spec": map[string]any{}} // which may be empty
	ex := &exporter{m: meterOf(L)}
	v, err := ex.value(tableArg(L, i), like, 0)
	charge(L, ex.made*kubeValueSteps, ex.made*kubeValueBytes)
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

func (c *importer) give(v any) int {
	made, err := c.value(v, 0)
	if err != nil {
		c.L.RaiseError("%v", err)
	}
	c.L.Push(made)
	return 1
}

func importerOf(L *lua.LState) *importer { return &importer{L: L, m: meterOf(L)} }

func kubePodRequirements(L *lua.LState) int {
	out, err := podRequirements(podArg(L, 1))
	if err != nil {
		L.RaiseError("kube.accuratePodRequirements: %v", err)
	}
	if out == nil {
		L.Push(lua.LNil)
		return 1
	}
	return importerOf(L).give(out)
}

// podRequirements of a pod template, as Karmada words them; nil where it states none.
func podRequirements(template map[string]any) (map[string]any, error) {
	fields, ok := template["spec"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the pod template has no spec")
	}
	var spec corev1.PodSpec
	if bad := atoll.EndlessQuantity(fields); bad != "" {
		return nil, fmt.Errorf("the pod template has the quantity %q, which is too long or whose exponent is too large", bad)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &spec); err != nil {
		return nil, fmt.Errorf("the pod template cannot be read: %w", err)
	}
	out := map[string]any{}
	requests := map[string]any{}
	for name, n := range interpret.PodRequests(&spec) {
		q := resource.NewQuantity(n, resource.BinarySI)
		if name == corev1.ResourceCPU {
			q = resource.NewMilliQuantity(n, resource.DecimalSI)
		}
		requests[string(name)] = q.String()
	}
	if len(requests) > 0 {
		out["resourceRequest"] = requests
	}
	claim := map[string]any{}
	for _, name := range []string{"nodeSelector", "tolerations"} {
		if v, there := fields[name]; there {
			claim[name] = v
		}
	}
	if v, ok, _ := unstructured.NestedFieldNoCopy(fields, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"); ok {
		claim["hardNodeAffinity"] = v
	}
	if len(claim) > 0 {
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

func kubePodDependencies(L *lua.LState) int {
	template, namespace := podArg(L, 1), ""
	if L.Get(2) != lua.LNil {
		namespace = textArg(L, 2)
	}
	spec, _ := template["spec"].(map[string]any)
	list := []any{}
	for _, key := range interpret.PodDependencies(spec, namespace) {
		list = append(list, map[string]any{"apiVersion": "v1", "kind": key.Kind, "namespace": namespace, "name": key.Name})
	}
	return importerOf(L).give(list)
}
