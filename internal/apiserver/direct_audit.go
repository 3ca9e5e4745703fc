package apiserver

import (
	"context"
	"net/http"
	"net/url"
	"path"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"atoll.dev/atoll/internal/apiserver/direct"
)

// newDirectWriteAuditor returns what reports direct writes of users' objects to the audit log, as the API
// reports its requests: by the operator's policy, in the same stages. nil: there is no audit log.
func (s *Server) newDirectWriteAuditor(log audit.Sink, policy audit.PolicyRuleEvaluator) direct.Auditor {
	if log == nil || policy == nil {
		return nil
	}
	hubUser := s.identities.userOf(HubUser)
	return func(ctx context.Context, p direct.AuditedPatch) (end func(int32), ok bool) {
		uri := objectPath(p)
		attributes := authorizer.AttributesRecord{
			User: hubUser, Verb: "patch", ResourceRequest: true, Path: uri,
			APIGroup: p.Kind.Group, APIVersion: p.Kind.Version, Resource: p.Resource, Namespace: p.Namespace, Name: p.Name,
		}
		ctx = audit.WithAuditContext(ctx)
		event := audit.AuditContextFrom(ctx)
		if err := event.Init(policy.EvaluatePolicyRule(attributes), log); err != nil {
			return nil, false
		}
		if !event.Enabled() {
			return func(int32) {}, true
		}
		audit.WithAuditID(ctx, uuid.NewUUID())
		audit.LogRequestMetadata(ctx, &http.Request{
			URL: &url.URL{Path: uri}, Header: http.Header{"User-Agent": {HubUser}}, RemoteAddr: "127.0.0.1:0",
		}, time.Now(), attributes)
		audit.LogRequestPatch(ctx, p.Patch)
		audit.AddAuditAnnotation(ctx, "atoll.dev/direct-write", "true")
		return func(status int32) {
			event.SetEventResponseStatusCode(status)
			event.ProcessEventStage(ctx, auditinternal.StageResponseComplete)
		}, event.ProcessEventStage(ctx, auditinternal.StageRequestReceived)
	}
}

// objectPath returns the path of the object in the API.
func objectPath(p direct.AuditedPatch) string {
	base := path.Join("/apis", p.Kind.Group, p.Kind.Version)
	if p.Kind.Group == "" {
		base = path.Join("/api", p.Kind.Version)
	}
	if p.Namespace != "" {
		base = path.Join(base, "namespaces", p.Namespace)
	}
	return path.Join(base, p.Resource, p.Name)
}
