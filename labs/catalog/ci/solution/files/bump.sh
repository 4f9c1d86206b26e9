#!/bin/sh
# Ask for another image in Git. Applying it is the reconciler's business.
set -eu
tag=${1:?usage: bump.sh TAG}
cd @WORK@/repo
git fetch --quiet origin main
git checkout --quiet --force -B main FETCH_HEAD
sed -i "s|\\(image[\"']\\{0,1\\}: *[\"']\\{0,1\\}\\)[^\"' ,}]*nginx:[^\"' ,}]*|\\1nginx:$tag|" deploy/web.yaml
git commit --quiet --message "ci: web nginx:$tag" deploy/web.yaml
git push --quiet origin main
