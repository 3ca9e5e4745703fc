package atoll

import (
	"reflect"
	"testing"
)

// A treatment is empty while no field of it is stated.
func TestTheEmptyTreatment(t *testing.T) {
	if !(&Treatment{}).IsEmpty() {
		t.Error("a treatment without a field is none")
	}
	for i := range reflect.TypeFor[Treatment]().NumField() {
		var one Treatment
		switch field := reflect.ValueOf(&one).Elem().Field(i); field.Kind() {
		case reflect.String:
			field.SetString("x")
		case reflect.Int32:
			field.SetInt(-1)
		case reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 1, 1))
		case reflect.Pointer:
			field.Set(reflect.New(field.Type().Elem()))
		default:
			t.Fatalf("field %s has no value here", reflect.TypeFor[Treatment]().Field(i).Name)
		}
		if one.IsEmpty() {
			t.Errorf("%s does not count", reflect.TypeFor[Treatment]().Field(i).Name)
		}
	}
}
