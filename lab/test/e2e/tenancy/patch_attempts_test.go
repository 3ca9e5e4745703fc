package tenancy

// outOfPatches change what no override may change, by patches that take values from elsewhere or lie in
// documents.
var outOfPatches = []attemptField{
	{"", userAttempt{"the namespace by a copy", "mallory", "create", configMapOverride("plaintext: [{path: /metadata/namespace, from: /metadata/labels/a, operator: copy}]"), "never touch"}},
	{"", userAttempt{"the finalizers by a move", "mallory", "create", configMapOverride("plaintext: [{path: /metadata/labels/a, from: /metadata/finalizers, operator: move}]"), "never touch"}},
	{"", userAttempt{"the name as a document to merge into", "mallory", "create", configMapOverride("fieldOverrider: [{fieldPath: /metadata/name, mergePatch: {a: b}}]"), "never touch"}},
	{"", userAttempt{"the name as an image with a digest", "mallory", "create", configMapOverride("imageOverrider: [{predicate: {path: /metadata/name}, component: Digest, operator: remove}]"), "never touch"}},
	{"", userAttempt{"data of Secrets by a copy", "mallory", "create", acmeOverride("v1", "Secret", "plaintext: [{path: /metadata/labels/a, from: /data/a, operator: copy}]"), "data of Secrets"}},
	{"", userAttempt{"data of Secrets by a test", "mallory", "create", acmeOverride("v1", "Secret", "plaintext: [{path: /data/a, operator: test, value: Yg==}]"), "data of Secrets"}},
	{"", userAttempt{"data of Secrets as a document to merge into", "mallory", "create", acmeOverride("v1", "Secret", "fieldOverrider: [{fieldPath: /data/a, mergePatch: {a: b}}]"), "data of Secrets"}},
}
