package overrides

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
)

// Each overrider of the API has an entry in the table, on its own and among the ordered ones.
func TestEveryOverriderHasAType(t *testing.T) {
	jsonName := func(f reflect.StructField) string {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		return name
	}
	var o v1alpha1.Overriders
	all := reflect.ValueOf(&o).Elem()
	var names []string
	for i := range all.NumField() {
		field, name := all.Field(i), jsonName(all.Type().Field(i))
		switch {
		case name == "notHere" || name == "ordered":
		case field.Kind() == reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 2, 2))
			names = append(names, name+"[0]", name+"[1]")
		default:
			field.Set(reflect.New(field.Type().Elem()))
			names = append(names, name)
		}
	}
	ordered := reflect.TypeFor[v1alpha1.OrderedOverrider]()
	for i := range ordered.NumField() {
		var one v1alpha1.OrderedOverrider
		f := ordered.Field(i)
		reflect.ValueOf(&one).Elem().Field(i).Set(reflect.New(f.Type.Elem()))
		o.Ordered = append(o.Ordered, one)
		names = append(names, fmt.Sprintf("ordered[%d].%s", i, jsonName(f)))
	}
	steps := listSteps(&o)
	if len(steps) != len(names) || len(o.Ordered) != len(overriderTypes) {
		t.Fatalf("%d steps of %d overriders, %d types", len(steps), len(names), len(overriderTypes))
	}
	for i, s := range steps {
		if s.kind == nil || s.name != names[i] {
			t.Errorf("step %d is %s of type %v, want %s", i, s.name, s.kind, names[i])
		}
	}
}
