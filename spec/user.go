package spec

import "strconv"

// EvaluationUser is the user of evaluations: dockerUser, which is the spec's docker.user, else
// huid:hgid, else the host's uid:gid. Where only one of huid and hgid is set, the other is the host's.
// "", the image's own user, is the answer where the host has no uids (-1).
func EvaluationUser(dockerUser, huid, hgid string, uid, gid int) string {
	if dockerUser != "" {
		return dockerUser
	}
	if huid == "" && uid >= 0 {
		huid = strconv.Itoa(uid)
	}
	if hgid == "" && gid >= 0 {
		hgid = strconv.Itoa(gid)
	}
	if huid == "" || hgid == "" {
		return huid
	}
	return huid + ":" + hgid
}
