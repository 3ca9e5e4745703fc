package atoll

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMissingConditionsAreUnknown(t *testing.T) {
	now := metav1.NewTime(time.Unix(1000, 0))
	for kind, all := range ConditionTypes {
		types := slices.DeleteFunc(slices.Clone(all), func(c ConditionType) bool { return c.Temporary })
		ready := metav1.Condition{Type: types[len(types)-1].Type, Status: metav1.ConditionTrue, Reason: "Ready", ObservedGeneration: 2}
		conditions := []metav1.Condition{ready}
		AddUnknownConditions(kind, &conditions, 7, now)
		AddUnknownConditions(kind, &conditions, 8, metav1.Now()) // adds nothing
		if conditions[0] != ready || len(conditions) != len(types) || IsUndetermined(&conditions[0]) {
			t.Errorf("%s: %+v", kind, conditions)
		}
		for _, is := range types[:len(types)-1] {
			c := meta.FindStatusCondition(conditions, is.Type)
			if !IsUndetermined(c) || c == nil || c.Status != metav1.ConditionUnknown || c.Message == "" || c.ObservedGeneration != 7 || !c.LastTransitionTime.Equal(&now) {
				t.Errorf("%s: %s is %+v", kind, is.Type, c)
			}
		}
		if normal := NormalStatuses(kind); len(normal) != len(all) || normal[types[0].Type] != types[0].Normal {
			t.Errorf("%s: normal statuses %v", kind, normal)
		}
	}
	if !IsUndetermined(nil) {
		t.Error("a missing condition has a value")
	}
}
