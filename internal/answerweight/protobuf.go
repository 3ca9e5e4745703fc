package answerweight

import (
	"reflect"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// WeighMessage subtracts the memory that the decoded message will need from the budget. It reads
// only as much of the message as that requires. The error is ErrTooHeavy where the budget does not
// suffice.
func WeighMessage(as reflect.Type, wire []byte, left *int) error {
	fields := fieldsOfType(as)
	for len(wire) > 0 {
		number, kind, n := protowire.ConsumeTag(wire)
		if n < 0 {
			return protowire.ParseError(n)
		}
		wire = wire[n:]
		if n = protowire.ConsumeFieldValue(number, kind, wire); n < 0 {
			return protowire.ParseError(n)
		}
		value := wire[:n]
		wire = wire[n:]
		of := fields[number]
		if of == nil || kind != protowire.BytesType {
			continue
		}
		message, _ := protowire.ConsumeBytes(value) // which was consumed just now
		cost := int(of.Size())
		if of.Kind() != reflect.Struct { // whose bytes are those of its fields
			cost += len(message)
		}
		if *left -= cost; *left < 0 {
			return ErrTooHeavy
		}
		if of.Kind() == reflect.Struct {
			if err := WeighMessage(of, message, left); err != nil {
				return err
			}
		}
	}
	return nil
}

// fieldTypes of structs, by their types: of repeated fields that of one element, of maps a
// struct as it is written.
var fieldTypes sync.Map

func fieldsOfType(as reflect.Type) map[protowire.Number]reflect.Type {
	if known, ok := fieldTypes.Load(as); ok {
		return known.(map[protowire.Number]reflect.Type)
	}
	fields := map[protowire.Number]reflect.Type{}
	for i := range as.NumField() {
		f := as.Field(i)
		parts := strings.Split(f.Tag.Get("protobuf"), ",")
		if len(parts) < 2 {
			continue
		}
		number, err := strconv.Atoi(parts[1])
		if err != nil {
			continue
		}
		fields[protowire.Number(number)] = elementType(f.Type)
	}
	known, _ := fieldTypes.LoadOrStore(as, fields)
	return known.(map[protowire.Number]reflect.Type)
}

// elementType returns the element of a field's type.
func elementType(of reflect.Type) reflect.Type {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice && of.Elem().Kind() != reflect.Uint8 {
		of = of.Elem()
	}
	if of.Kind() != reflect.Map {
		return of
	}
	return reflect.StructOf([]reflect.StructField{
		{Name: "Key", Type: of.Key(), Tag: `protobuf:"bytes,1,opt,name=key"`},
		{Name: "Value", Type: of.Elem(), Tag: `protobuf:"bytes,2,opt,name=value"`},
	})
}
