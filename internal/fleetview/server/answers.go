package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"atoll.dev/atoll/internal/answerweight"
)

const (
	// decodedMost bounds what an answer of a member becomes in memory, in bytes: an empty object takes
	// two in an answer, and a thousand times that here.
	decodedMost = 4 * answerMost
	// versionMost bounds a member's resource versions, in bytes: they are remembered.
	versionMost = 128
)

// protobufMark is before every object that is written as protobuf.
var protobufMark = []byte("k8s\x00")

// responseDecoder reads members' answers: objects as protobuf, and Statuses also as JSON, which proxies
// write. An answer that would take more memory than allowed is refused before it does.
type responseDecoder struct {
	runtime.Decoder
	kinds runtime.ObjectCreater
}

var (
	liveAnswers  = responseDecoder{clientscheme.Codecs.UniversalDeserializer(), clientscheme.Scheme}
	usageAnswers = responseDecoder{usageCodecs.UniversalDeserializer(), usageScheme}
)

// Decode decodes an object.
func (a responseDecoder) Decode(data []byte, _ *schema.GroupVersionKind, _ runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, err := a.decodeLimited(data, func(int) error { return nil })
	if err != nil {
		return nil, nil, err
	}
	kind := obj.GetObjectKind().GroupVersionKind()
	return obj, &kind, nil
}

// decodeLimited decodes an object, if may admits the bytes of memory that it takes.
func (a responseDecoder) decodeLimited(data []byte, may func(weight int) error) (runtime.Object, error) {
	wire, ok := bytes.CutPrefix(data, protobufMark)
	if !ok {
		if err := may(len(data)); err != nil {
			return nil, err
		}
		obj, _, err := decodeStatusJSON(data)
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
	if err := answerweight.WeighMessage(reflect.TypeOf(empty).Elem(), envelope.Raw, &left); err != nil {
		return nil, err
	}
	if err := may(decodedMost - left); err != nil {
		return nil, err
	}
	obj, _, err := a.Decoder.Decode(data, nil, nil)
	return obj, err
}

// decodeStatusJSON reads a Status JSON.
func decodeStatusJSON(data []byte) (runtime.Object, *schema.GroupVersionKind, error) {
	s := &metav1.Status{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, nil, fmt.Errorf("it is neither protobuf nor a Status: %w", err)
	}
	kind := s.GroupVersionKind()
	if kind != metav1.SchemeGroupVersion.WithKind("Status") && kind != metav1.Unversioned.WithKind("Status") {
		return nil, nil, fmt.Errorf("it is a %s as JSON, where protobuf was requested", kind.Kind)
	}
	return s, &kind, nil
}

// checkVersionLength refuses a resource version that no API server gives: a hub stores those of
// members.
func (m *member) checkVersionLength(version string) (string, error) {
	if len(version) > versionMost {
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s: its agent answers with a resource version of %d bytes", m.Name, len(version)))
	}
	return version, nil
}
