package member

import (
	"context"
	"encoding/json"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
)

// scheme has the few kinds that the agent itself reads and writes.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(coordinationv1.AddToScheme(s))
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
}()

var (
	codecs = serializer.NewCodecFactory(scheme)
	plain  = codecs.WithoutConversion()
	params = runtime.NewParameterCodec(scheme)
)

// ParameterCodec returns the codec of query parameters for TypedClient.
func ParameterCodec() runtime.ParameterCodec { return params }

// TypedClient speaks protobuf for kinds of the group (core or
// coordination.k8s.io), version v1.
func TypedClient(config *rest.Config, group string) (rest.Interface, error) {
	return ProtobufClient(config, schema.GroupVersion{Group: group, Version: "v1"}, plain)
}

// ProtobufClient speaks protobuf, where the member does, for the kinds of a group and version that
// the serializer supports. The configuration is not changed.
func ProtobufClient(config *rest.Config, gv schema.GroupVersion, kinds runtime.NegotiatedSerializer) (rest.Interface, error) {
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath = &gv, "/apis"
	if gv.Group == "" {
		c.APIPath = "/api"
	}
	c.NegotiatedSerializer = kinds
	c.ContentType = runtime.ContentTypeProtobuf
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client of the member: %w", err)
	}
	return client, nil
}

func getVersion(ctx context.Context, client rest.Interface) (string, error) {
	body, err := client.Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return "", fmt.Errorf("read the member's version: %w", err)
	}
	var info version.Info
	if err := json.Unmarshal(body, &info); err != nil {
		return "", fmt.Errorf("the member's answer on /version: %w", err)
	}
	return info.GitVersion, nil
}
