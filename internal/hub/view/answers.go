package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

const (
	// decodedMost bounds what an answer of a member becomes in memory, in bytes: an object
	// that says nothing takes two in an answer, and a thousand times that here.
	decodedMost = 4 * answerMost
	// versionMost bounds a member's resource versions, in bytes: they are remembered.
	versionMost = 128
)

// protobufMark is before every object that is written as protobuf.
var protobufMark = []byte("k8s\x00")

// answers reads what members answer: objects as protobuf, and Statuses as JSON too, which
// proxies on the way there write. What would take more memory than answers may is refused
// before it does.
type answers struct {
	runtime.Decoder
	kinds runtime.ObjectCreater
}

var (
	liveAnswers  = answers{clientscheme.Codecs.UniversalDeserializer(), clientscheme.Scheme}
	usageAnswers = answers{usageCodecs.UniversalDeserializer(), usageScheme}
)

// Decode an object.
func (a answers) Decode(data []byte, _ *schema.GroupVersionKind, _ runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, err := a.decode(data, func(int) error { return nil })
	if err != nil {
		return nil, nil, err
	}
	kind := obj.GetObjectKind().GroupVersionKind()
	return obj, &kind, nil
}

// decode an object, if it may take as many bytes of memory as may is asked for.
func (a answers) decode(data []byte, may func(weight int) error) (runtime.Object, error) {
	wire, ok := bytes.CutPrefix(data, protobufMark)
	if !ok {
		if err := may(len(data)); err != nil {
			return nil, err
		}
		obj, _, err := statusIn(data)
		return obj, err
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(wire); err != nil {
		return nil, fmt.Errorf("it is no object: %w", err)
	}
	kind := schema.FromAPIVersionAndKind(envelope.APIVersion, envelope.Kind)
	empty, err := a.kinds.New(kind)
	if err != nil {
		return nil, err
	}
	left := decodedMost
	if err := weigh(reflect.TypeOf(empty).Elem(), envelope.Raw, &left); err != nil {
		return nil, err
	}
	if err := may(decodedMost - left); err != nil {
		return nil, err
	}
	obj, _, err := a.Decoder.Decode(data, nil, nil)
	return obj, err
}

// statusIn JSON.
func statusIn(data []byte) (runtime.Object, *schema.GroupVersionKind, error) {
	s := &metav1.Status{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, nil, fmt.Errorf("it is neither protobuf nor a Status: %w", err)
	}
	kind := s.GroupVersionKind()
	if kind != metav1.SchemeGroupVersion.WithKind("Status") && kind != metav1.Unversioned.WithKind("Status") {
		return nil, nil, fmt.Errorf("it is a %s as JSON, where protobuf was asked for", kind.Kind)
	}
	return s, &kind, nil
}

var errHeavy = errors.New("it would take more memory than an answer may")

// weigh what a message becomes as that struct, and take it from what is left. It reads no
// more of the message than tells that.
func weigh(as reflect.Type, wire []byte, left *int) error {
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
			return errHeavy
		}
		if of.Kind() == reflect.Struct {
			if err := weigh(of, message, left); err != nil {
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
		fields[protowire.Number(number)] = elementOf(f.Type)
	}
	known, _ := fieldTypes.LoadOrStore(as, fields)
	return known.(map[protowire.Number]reflect.Type)
}

// elementOf a field's type.
func elementOf(of reflect.Type) reflect.Type {
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

// bounded refuses a resource version that no API server gives: a hub remembers those of
// members.
func (m *member) bounded(version string) (string, error) {
	if len(version) > versionMost {
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s: its agent answers with a resource version of %d bytes", m.Name, len(version)))
	}
	return version, nil
}
