package freecapacity

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
)

func TestNodeClassText(t *testing.T) {
	for text, want := range map[string]NodeClass{
		"1":                                  {Nodes: 1},
		"3 cpu=3500m memory=12288Mi pods=90": {Nodes: 3, CPU: 3500, Memory: 12 << 30, Pods: 90},
		"2 cpu=8000m pods=5 nvidia.com/gpu=2 taints=gpu=true:NoSchedule,x:NoExecute": {
			Nodes: 2, CPU: 8000, Pods: 5, Other: map[string]int64{"nvidia.com/gpu": 2},
			Taints: []v1alpha1.Taint{{Key: "gpu", Value: "true", Effect: "NoSchedule"}, {Key: "x", Effect: "NoExecute"}},
		},
	} {
		got, err := ParseNodeClass(text)
		if err != nil || !reflect.DeepEqual(got, want) || got.String() != text {
			t.Errorf("%q is %+v as %q, %v", text, got, got.String(), err)
		}
	}
	for _, text := range []string{"", "x", "0 cpu=1m", "-1", "1 cpu=1", "1 cpu=-1m", "1 cpu=0m", "1 cpu=1m  pods=1", "1 =4", "1 a/b=", "1 memory=99999999999999Mi",
		"1 pods=99999999999999999999", "1 taints=", "1 taints=a", "1 taints=:NoSchedule", "1 taints=a:Sometimes", "1 taints=a=" + strings.Repeat("v", 64) + ":NoSchedule", "1 taints=" + strings.Repeat("k", 317) + ":NoSchedule", "1 a/b=" + strings.Repeat("0", 1100) + "1"} {
		if c, err := ParseNodeClass(text); err == nil {
			t.Errorf("%.40q was read as %+v", text, c)
		}
	}
	if _, err := ParseClasses(slices.Repeat([]string{"1 cpu=1m"}, MaxNodeClasses+1)); err == nil {
		t.Error("too many classes were read")
	}
	if r, err := ParseClasses([]string{"1 cpu=1m", "bad"}); err == nil {
		t.Errorf("a damaged room was read as %v", r)
	}
	if r, err := ParseClasses(nil); err != nil || r == nil || len(r) != 0 {
		t.Errorf("no nodes are %v, %v", r, err)
	}
}

func FuzzNodeClass(f *testing.F) {
	f.Add("3 cpu=3500m memory=12288Mi pods=90 nvidia.com/gpu=2 taints=gpu=true:NoSchedule")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseNodeClass(text)
		if err != nil {
			return
		}
		if again, err := ParseNodeClass(c.String()); err != nil && len(c.String()) <= 1024 || err == nil && again.String() != c.String() {
			t.Errorf("%q is %q, and then %+v, %v", text, c, again, err)
		}
	})
}

// A room of more than can be counted is the largest that can.
func TestTotalsDoNotRunOver(t *testing.T) {
	r := NodeClasses{{Nodes: 1 << 30, CPU: 1 << 52, Memory: 1 << 52, Pods: 2}, {Nodes: 1, CPU: 1}}
	if got := r.TotalByResource(); got["cpu"] != math.MaxInt64 || got["memory"] != math.MaxInt64 || got["pods"] != 1<<31 || got["nodes"] != 1<<30+1 {
		t.Errorf("in all %v", got)
	}
}
