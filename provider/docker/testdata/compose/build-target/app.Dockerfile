FROM fumehood-test/busybox AS first
RUN echo first > /stage
FROM first AS second
ARG COLOR=red
RUN echo second > /stage; echo "$COLOR" > /argument
FROM first AS third
RUN echo third > /stage
