package atoll

import "atoll.dev/atoll/api/v1alpha1"

// ProxyPaths is what the paths of all clusters begin with, where the hub serves their APIs.
var ProxyPaths = "/apis/" + v1alpha1.GroupVersion.String() + "/clusters/"

// ProxyPath is that of one cluster, without a slash at its end.
func ProxyPath(cluster string) string { return ProxyPaths + cluster + "/proxy" }
